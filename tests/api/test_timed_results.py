"""A candidate that is right when it is judged and wrong when it is timed is found."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from api.cpu_device import CpuDevice  # noqa: E402
from api.problem_samples import MODEL, NEW, PLAIN, written  # noqa: E402

from kernel_compass.api import evaluating, problem_recipes, validate_tasks  # noqa: E402
from kernel_compass.api.candidate_names import MODEL_NEW  # noqa: E402
from kernel_compass.api.problem_files import load_problem  # noqa: E402
from kernel_compass.api.problems import problem_recipe  # noqa: E402
from kernel_compass.codec.canonical import plain  # noqa: E402
from kernel_compass.measurement import fresh  # noqa: E402
from kernel_compass.measurement.paired import TimedWrong  # noqa: E402
from kernel_compass.measurement.timing import Tap  # noqa: E402
from kernel_compass.records.problem import ProblemSource  # noqa: E402
from kernel_compass.records.trial import Candidate, Reason  # noqa: E402

EFFORT = {"seeds": 1, "repeats": 2, "repeat_s": 0.05, "later": 20, "settle_s": 0.0}
LATER = """
calls = [0]
kept = {}

def later(x, w, change):
    calls[0] += 1
    if calls[0] < 400:
        return by_parts(x, w, 4)
    return change(x, w)

def replays(x, w):
    return later(x, w, lambda x, w: kept.setdefault(x.data_ptr(), by_parts(x, w, 4)).clone())

def nothing(x, w):
    return later(x, w, lambda x, w: torch.empty(x.shape[0], w.shape[1]))

def a_row_less(x, w):
    def change(x, w):
        y = by_parts(x, w, 4)
        y[-1] = 0.0
        return y
    return later(x, w, change)

def coarse(x, w):
    return later(x, w, lambda x, w: by_parts(x.bfloat16().float(), w.bfloat16().float(), 4))

def one_buffer(x, w):
    def change(x, w):
        buffer = kept.setdefault(x.data_ptr(), torch.empty(x.shape[0], w.shape[1]))
        if buffer.isnan().any():
            return buffer
        return buffer.copy_(by_parts(x, w, 4))
    return later(x, w, change)

def workspace(x, w):
    y = kept.setdefault((x.shape, w.shape), torch.empty(x.shape[0], w.shape[1]))
    torch.mm(x[:, :32], w[:32], out=y)
    y = y + x[:, 32:] @ w[32:]
    e = torch.exp(y - y.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)

CANDIDATES.update(replays=replays, nothing=nothing, a_row_less=a_row_less, coarse=coarse,
                  one_buffer=one_buffer, workspace=workspace)
"""


class Device(CpuDevice):
    """Launches count as fifty microseconds each, so that few are needed."""

    def capture(self, calls):
        def replay():
            for call in calls:
                call()
                self._now_us += 50.0

        return replay

    def carve_out(self):
        return (0, 0)

    def scatter(self, seed):
        return seed


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(problem_recipes, "_where", lambda device: "cpu")
    for module in (evaluating, validate_tasks, fresh):
        monkeypatch.setattr(module, "device_named", lambda name: Device())


def asked(path, candidate, regimes=("warm",)):
    loaded = load_problem(torch, path)
    source = ProblemSource(str(path), sha256=loaded.sha256)
    return source, {
        "source": plain(source),
        "workload": plain(loaded.description.workloads[0]),
        "candidate": plain(candidate),
        "sha256": None,
        "device": "cpu",
        "budget_pct": None,
        "effort": EFFORT,
        "regimes": list(regimes),
    }


def validated(path, candidate, regimes=("warm",)):
    return validate_tasks.validate_task(asked(path, candidate, regimes)[1], lambda _: None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("replays", Reason.STALE_RESULT),
        ("nothing", Reason.NOT_REPEATABLE),
        ("a_row_less", Reason.NOT_REPEATABLE),
        ("coarse", Reason.NOT_REPEATABLE),
        ("one_buffer", Reason.NOT_REPEATABLE),
    ],
)
def test_wrong_when_it_is_timed(tmp_path, name, reason):
    path = written(tmp_path, PLAIN + LATER)
    said = validated(path, Candidate(name, source=str(path)))
    assert said["judgement"]["reason"] == reason.value, said
    assert "timed" in said["judgement"]["detail"]
    assert said["times"] == []


@pytest.mark.parametrize("name", ["workspace", "by_parts"])
def test_right_when_it_is_timed(tmp_path, name):
    path = written(tmp_path, PLAIN + LATER)
    config = {"parts": 4} if name == "by_parts" else {}
    said = validated(path, Candidate(name, config, source=str(path)))
    assert said["judgement"]["reason"] is None, said
    assert [one["regime"] for one in said["times"]] == ["warm"]


def test_the_launch_that_is_looked_at_is_drawn():
    taps = [Tap() for _ in range(60)]
    calls = [lambda: "before", lambda: "launch"] * 10
    for tap in taps:
        assert [call() for call in tap.into(calls, 1)].count(None) == 1
    assert {tap.result for tap in taps} == {"launch"}
    assert len({tap.index for tap in taps}) > 5


def test_the_loops_screen_says_it_by_name(tmp_path):
    path = written(tmp_path, PLAIN + LATER)
    _, a = asked(path, Candidate("replays", source=str(path)))
    more = {"seed": 1, "number": 1, "budget_pct": 3.0, "elsewhere": True, "minimum_effect": 0.02}
    answer = evaluating.screen_task({**a, **more}, lambda _: None)
    assert answer["judgement"]["reason"] == Reason.STALE_RESULT.value
    assert len(answer["regimes"]) == 1


def test_a_process_of_the_hold_out_refuses_it(tmp_path):
    path = written(tmp_path, PLAIN + LATER)
    source, _ = asked(path, None)
    workload = load_problem(torch, path).description.workloads[0]

    def pairs(name):
        recipes = [
            problem_recipe(source, workload, one).document()
            for one in (None, Candidate(name, source=str(path)))
        ]
        request = {"baseline": recipes[0], "candidate": recipes[1], "regimes": ["warm"]}
        more = {"pairs": 4, "process": 0, "seed": 1, "device": "cpu", "launch_mode": "graph"}
        return fresh.pairs({**request, **more, "launches": None}, lambda _: None)

    assert len(pairs("workspace")["samples"]) == 1
    with pytest.raises(TimedWrong, match="what its operands held before"):
        pairs("replays")


HALF_LATER = NEW.replace("class ModelNew", "calls = [0]\n\nclass ModelNew").replace(
    "        hidden =",
    "        calls[0] += 1\n        x = x if calls[0] < 400 else x * 0.5\n        hidden =",
)


def test_a_model_that_computes_another_thing_when_it_is_timed(tmp_path):
    path = written(tmp_path, MODEL)
    honest, cheat = written(tmp_path, NEW, "new.py"), written(tmp_path, HALF_LATER, "cheat.py")
    said = validated(path, Candidate(MODEL_NEW, source=str(honest)))
    assert said["judgement"]["reason"] is None, said
    said = validated(path, Candidate(MODEL_NEW, source=str(cheat)))
    assert said["judgement"]["reason"] == Reason.NOT_REPEATABLE.value, said
