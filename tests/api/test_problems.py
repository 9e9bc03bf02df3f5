"""Problems by name: what they consist of, their candidates, and recipes of these."""

from __future__ import annotations

import hashlib

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from api.problem_samples import MODEL, NEW, PLAIN, written  # noqa: E402

from kernel_compass.api import problems  # noqa: E402
from kernel_compass.codec.canonical import plain, reshaped  # noqa: E402
from kernel_compass.errors import UsageError  # noqa: E402
from kernel_compass.execution.local_executor import LocalExecutor  # noqa: E402
from kernel_compass.measurement.simulated import SimulatedDevice  # noqa: E402
from kernel_compass.measurement.timing import TimingOptions, measure  # noqa: E402
from kernel_compass.records.problem import ProblemSource  # noqa: E402
from kernel_compass.records.profile import Regime  # noqa: E402
from kernel_compass.records.trial import Candidate, Reason  # noqa: E402
from kernel_compass.records.workload import Op, Workload  # noqa: E402
from kernel_compass.validation.judge import judge  # noqa: E402
from kernel_compass.validation.judge_contracts import Effort  # noqa: E402
from kernel_compass.validation.machines import CpuMachine  # noqa: E402
from kernel_compass.validation.watch import Watch  # noqa: E402

EFFORT = Effort(seeds=1, repeats=3, repeat_s=0.1, settle_s=0.001)


def said(source, candidate, index=0, workloads=None):
    watch = Watch(torch)
    chosen = (workloads or problems.product_description(source).workloads)[index]
    problem, build, declared = problems.judged(torch, source, chosen, candidate, "cpu")
    machine = CpuMachine(torch)
    return judge(torch, problem, chosen, build, machine, watch, EFFORT, declared)


def test_mla_is_both_products_at_every_batch_size():
    source = problems.problem_source("MLA:DeepSeek-V3", (1, 16, 64))
    found = problems.product_description(source)
    assert [one.product for one in found.workloads] == [
        Workload(Op.BMM, 128, m, k, n, name)
        for name, k, n in (("q_absorb", 128, 512), ("v_up", 512, 128))
        for m in (1, 16, 64)
    ]
    assert {one.weight for one in found.workloads} == {61.0}, "layers of the published model"
    assert found.error_budget_pct == 3.0
    assert reshaped(plain(source), ProblemSource) == source


def test_tp_splits_heads_and_shapes_are_in_the_order_they_are_written():
    split = problems.problem_source("mla:deepseek-v2", (4,), tp=8)
    assert {w.product.heads for w in problems.product_description(split).workloads} == {16}
    one = problems.product_description(problems.problem_source("bmm:8x3x64x32")).workloads
    assert [w.product for w in one] == [Workload(Op.BMM, 8, 3, 64, 32)]
    many = problems.product_description(problems.problem_source("linear:3x64x32", (1, 7)))
    assert [w.product for w in many.workloads] == [
        Workload(Op.LINEAR, 1, 1, 32, 64),
        Workload(Op.LINEAR, 1, 7, 32, 64),
    ]


@pytest.mark.parametrize(
    ("target", "arguments", "words"),
    [
        ("deepseek-v3", {}, "There is no problem 'deepseek-v3'"),
        ("mla:llama-3.1-8b", {}, "no latent attention"),
        ("mla:deepseek-v9", {}, "no model 'deepseek-v9'"),
        ("mla:deepseek-v3", {"tp": 3}, "cannot be split over 3"),
        ("bmm:8x3x64", {}, "no shape of a bmm.*bmm:HxMxKxN"),
        ("bmm:8x3x64x32", {"tp": 2}, "not split"),
        ("bmm:", {}, "no shape"),
        ("", {}, "no problem"),
        ("linear:16x0x32", {}, "not between 1"),
        ("mla:deepseek-v3", {"tokens": (0,)}, "no list of batch sizes"),
        ("no/such/problem.py", {}, "no file"),
    ],
)
def test_what_is_no_problem_says_what_would_be_one(target, arguments, words):
    with pytest.raises(UsageError, match=words):
        problems.problem_source(target, **arguments)


def test_a_file_is_hashed_here_and_run_in_a_worker_alone(tmp_path):
    mark = tmp_path / "ran"
    text = PLAIN + f"\nimport os, pathlib\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))"
    path = written(tmp_path, text)
    source = problems.problem_source(str(path))
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert not mark.exists(), "naming it ran it"
    with LocalExecutor(tmp_path / "work") as executor:
        found = problems.describe_problem(source, executor)
        assert [w.values for w in found.workloads][1] == {"rows": 1, "width": 100}
        assert found.streamed == ("w",)
        assert {one.name: one.space for one in found.candidates} == {
            "by_parts": ({"parts": 1}, {"parts": 4}),
            "wrong": ({},),
        }
        import os

        assert mark.read_text() != str(os.getpid())
        path.write_text(PLAIN + "# changed")
        with pytest.raises(UsageError, match="another file"):
            problems.describe_problem(source, executor)
        damaged = written(tmp_path, PLAIN.replace("ERROR_BUDGET", "BUDGET"), "damaged.py")
        with pytest.raises(UsageError, match="ERROR_BUDGET"):
            problems.describe_problem(problems.problem_source(str(damaged)), executor)
        exits = written(tmp_path, "import os\nos._exit(3)", "exits.py")
        with pytest.raises(UsageError, match=r"could not be loaded"):
            problems.describe_problem(problems.problem_source(str(exits)), executor)
    with pytest.raises(UsageError, match="names its workloads itself"):
        problems.problem_source(str(path), (1, 2))


def test_candidates_of_products_are_judged():
    source = problems.problem_source("bmm:2x3x64x32")
    good = said(source, Candidate("cublas_bf16", format="bf16"))
    assert good.reason is None, good.detail


def test_candidates_of_files_are_judged_and_found_in_files_of_their_own(tmp_path):
    source = problems.problem_source(str(written(tmp_path, PLAIN)))
    workloads = problems.load_source(torch, source, "cpu").description.workloads
    assert said(source, Candidate("by_parts", {"parts": 4}), 0, workloads).reason is None
    assert said(source, Candidate("wrong"), 0, workloads).reason is Reason.WRONG_RESULT
    other = written(
        tmp_path, "def better(x, w):\n    y = x @ w\n    return y.softmax(-1)\n", "own.py"
    )
    own = Candidate("better", source=str(other))
    assert said(source, own, 0, workloads).reason in (None, Reason.BASELINE_IN_DISGUISE)
    with pytest.raises(UsageError, match="no function 'worse'"):
        said(source, Candidate("worse", source=str(other)), 0, workloads)


def test_a_model_and_its_new_one(tmp_path):
    source = problems.problem_source(str(written(tmp_path, MODEL)))
    workloads = problems.load_source(torch, source, "cpu").description.workloads
    new = written(tmp_path, NEW, "new.py")
    found = said(source, Candidate("ModelNew", source=str(new)), 0, workloads)
    assert found.reason is None, found.detail


def test_recipes_build_anew_on_the_simulated_device(tmp_path):
    source = problems.problem_source("bmm:64x1x128x2048")
    workload = problems.product_description(source).workloads[0]
    options = TimingOptions()
    times = {}
    for name, candidate in (("base", None), ("fp8", Candidate("own_decode", format="w8a16_fp8"))):
        device = SimulatedDevice()
        subject = problems.problem_recipe(source, workload, candidate).build(device)
        times[name] = measure(subject, device, Regime.COLD, options=options).median_us
    assert times["base"] > 1.5 * times["fp8"]
    filed = problems.problem_source(str(written(tmp_path, PLAIN)))
    sizes = problems.load_source(torch, filed, "cpu").description.workloads[0]
    for candidate in (None, Candidate("by_parts", {"parts": 4})):
        recipe = problems.problem_recipe(filed, sizes, candidate)
        subject = type(recipe).of(recipe.document()).build(SimulatedDevice())
        assert [o.bytes for o in subject.streamed] == [64 * 48 * 4]
        assert [o.bytes for o in subject.resident] == [33 * 64 * 4]
    with pytest.raises(UsageError, match="no candidate 'none'"):
        problems.problem_recipe(filed, sizes, Candidate("none")).build(SimulatedDevice())
