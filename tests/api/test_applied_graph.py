"""A step that is captured once and replayed; without a GPU, by a stand-in that keeps its rules."""

from __future__ import annotations

import contextlib
import threading
from importlib.util import find_spec

import pytest

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch
from api.applied_stand_ins import action, put_on

from kernel_compass.api.actions.context import Context
from kernel_compass.api.actions.graphed import MOST_CAPTURES
from kernel_compass.api.actions.patching import layers_left
from kernel_compass.api.applying import applied_actions


class Replays:
    """Runs the captured call again, into the outputs of the capture: what a CUDA graph would."""

    device = "cpu"

    def __init__(self):
        self.captured, self.replayed, self.fails = 0, 0, None

    def busy(self):
        return False

    def warm_up(self):
        return contextlib.nullcontext()

    def capture(self, call):
        if self.fails:
            raise self.fails
        self.captured += 1
        before = torch.utils._pytree.tree_leaves(self.kept)
        saved = [one.clone() for one in before]
        result = call()
        for one, was in zip(before, saved, strict=True):
            one.copy_(was)  # capturing runs nothing
        outputs = [one for one in torch.utils._pytree.tree_leaves(result) if one is not None]

        def replay():
            self.replayed += 1
            for one, new in zip(outputs, torch.utils._pytree.tree_leaves(call()), strict=True):
                if one is not new:
                    one.copy_(new)

        return replay, result

    kept: list = []  # noqa: RUF012


class Model(torch.nn.Module):
    """Reads its weight, writes a cache and a counter on its device."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.eye(4) * 2, requires_grad=False)
        self.register_buffer("cache", torch.zeros(4))
        self.count = torch.zeros(())

    def forward(self, x, scale=1.0):
        self.count += 1
        self.cache.copy_(x[0])
        return {"out": x @ self.w * scale + self.count, "cache": self.cache}


@pytest.fixture
def graphs():
    return Replays()


def on_step(model, graphs, **settings):
    graphs.kept = [model.cache, model.count] if hasattr(model, "count") else []
    return put_on([action("step_graph", "step", settings=settings)], model, graphs=graphs)


def expected(model, calls):
    twin = type(model)()
    return [{k: v.clone() for k, v in twin(*args).items()} for args in calls]


def inputs(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("again", [False, True])
def test_every_call_gives_what_the_step_gives(graphs, again):
    model = Model()
    x = inputs(2, 4)
    calls = [(x,) if again else (inputs(2, 4, seed=n),) for n in range(6)]
    wanted = expected(model, calls)
    with on_step(model, graphs) as on:
        found = [model(*args) for args in calls]
        for one, exact in zip(found, wanted, strict=True):
            assert torch.equal(one["out"], exact["out"])
        assert found[-1]["cache"] is model.cache and torch.equal(model.cache, calls[-1][0][0])
        assert model.count == 6 and graphs.captured == 1 and graphs.replayed == 5
        assert on.applications[0].uses == 5
    assert "forward" not in vars(model) and layers_left() == 0
    assert torch.equal(model(x)["out"], x @ model.w + 7)


def test_static_outputs_are_overwritten_by_the_next_call(graphs):
    model, x = Model(), inputs(2, 4)
    with on_step(model, graphs, outputs="static"):
        model(x)
        second, third = model(x), model(x)
        assert second["out"] is third["out"]


def test_other_shapes_and_arguments_are_captured_by_themselves(graphs):
    model = Model()
    calls = [(inputs(2, 4),), (inputs(3, 4),), (inputs(2, 4), 2.0)] * 4
    wanted = expected(model, calls)
    with on_step(model, graphs):
        for args, exact in zip(calls, wanted, strict=True):
            assert torch.equal(model(*args)["out"], exact["out"])
    assert graphs.captured == 3 and graphs.replayed == 9


def test_another_weight_is_captured_anew_and_a_changed_one_is_read(graphs):
    model, x = Model(), inputs(2, 4)
    with on_step(model, graphs):
        model(x), model(x)
        model.w.mul_(2)
        assert torch.equal(model(x)["out"], x @ model.w + 3) and graphs.captured == 1
        model.w = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
        assert torch.equal(model(x)["out"], x @ torch.ones(4, 4) + 4) and graphs.captured == 2


def test_an_input_that_the_step_writes_is_the_callers(graphs):
    class Writes(torch.nn.Module):
        def forward(self, x, cache):
            cache.add_(x)
            return cache * 2

    model, cache = Writes(), torch.zeros(3)
    graphs.kept = [cache]
    with put_on([action("step_graph")], model, graphs=graphs) as on:
        for n in range(1, 5):
            assert torch.equal(model(torch.ones(3), cache), torch.full((3,), 2.0 * n))
        assert torch.equal(cache, torch.full((3,), 4.0)) and graphs.replayed == 3
        for _ in range(3):
            other = torch.zeros(3)
            graphs.kept = [other]
            assert torch.equal(model(torch.ones(3), other), torch.full((3,), 2.0))
            assert torch.equal(other, torch.ones(3))
        assert "writes to an argument" in on.applications[0].notes[0]


class Bad(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.calls, self.log = how, 0, []

    def forward(self, x):
        return getattr(self, self.how)(x)

    def item(self, x):
        return x + 1 if x.sum().item() > 0 else x - 1

    def branch(self, x):
        return x + 1 if x.sum() > 0 else x - 1

    def counts(self, x):
        self.calls += 1
        return x + self.calls

    def logs(self, x):
        self.log.append(1)
        return x + len(self.log)

    def nonzero(self, x):
        return x.nonzero()

    def number(self, x):
        return x + 1, 3

    def same(self, x):
        return x

    def view(self, x):
        return x[0]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("item", "waits for the GPU"),
        ("branch", "waits for the GPU"),
        ("nonzero", "waits for the GPU"),
        ("counts", "changes calls"),
        ("logs", "changes log"),
        ("number", "returns a int"),
        ("same", "returns an argument"),
        ("view", "returns an argument"),
    ],
)
def test_what_a_graph_cannot_replay_runs_as_it_is(graphs, how, said):
    model, twin, x = Bad(how), Bad(how), inputs(2, 4)
    with put_on([action("step_graph")], model, graphs=graphs) as on:
        for n in range(4):
            found, exact = model(x * (-1) ** n), twin(x * (-1) ** n)
            pairs = zip(*map(torch.utils._pytree.tree_leaves, (found, exact)), strict=True)
            assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs)
        assert graphs.captured == 0 and said in "\n".join(on.explain())


def test_a_capture_that_fails_leaves_the_step_as_it_was(graphs):
    graphs.fails = RuntimeError("operation not permitted when stream is capturing")
    model = Model()
    calls = [(inputs(2, 4, seed=n),) for n in range(4)]
    wanted = expected(model, calls)
    with on_step(model, graphs) as on:
        for args, exact in zip(calls, wanted, strict=True):
            assert torch.equal(model(*args)["out"], exact["out"])
        assert "not permitted" in on.applications[0].notes[0]


def test_what_moves_all_the_time_is_given_up(graphs):
    model, x = Model(), inputs(2, 4)
    with on_step(model, graphs) as on:
        for n in range(8):
            model.w = torch.nn.Parameter(torch.eye(4) * n, requires_grad=False)
            assert torch.equal(model(x)["out"], x * n + n + 1)
    assert graphs.captured == MOST_CAPTURES and "moves at every call" in "\n".join(on.explain())


def test_training_and_exceptions_are_the_programs_own(graphs):
    model = torch.nn.Linear(4, 4)
    with put_on([action("step_graph")], model, graphs=graphs):
        for _ in range(3):
            model(inputs(2, 4)).sum().backward()
        with torch.no_grad(), pytest.raises(RuntimeError, match="shapes"):
            model(inputs(2, 5))
    assert model.weight.grad is not None and graphs.captured == 0


def test_random_numbers_are_not_used_up_by_capturing(graphs):
    class Rolls(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand(4)

    model, x = Rolls(), inputs(4)
    torch.manual_seed(5)
    wanted = [model(x) for _ in range(4)]
    torch.manual_seed(5)
    with put_on([action("step_graph")], model, graphs=graphs):
        assert torch.equal(model(x), wanted[0])
        model(x)


def test_threads_do_not_meet_in_one_graph(graphs):
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    xs = [inputs(2, 4, seed=n) for n in range(8)]
    wanted, wrong = [model(x) for x in xs], []

    def work(at):
        for _ in range(50):
            if not torch.equal(model(xs[at]), wanted[at]):
                wrong.append(at)

    with put_on([action("step_graph")], model, graphs=graphs):
        threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    assert not wrong


def test_without_a_gpu_it_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with put_on([action("step_graph")], Model()) as on:
        assert "need a GPU" in on.applications[0].objection
        with put_on([action("step_graph", settings={"outputs": "x"})], graphs=Replays()) as other:
            assert "says nothing about outputs" in other.applications[0].objection


class Held:
    """A step that is a function, as capture holds it."""

    def __init__(self):
        self.model = Model()
        self.x = inputs(2, 4)
        self.function = lambda: self.model(self.x)["out"]

    def roots(self):
        return {"model": self.model}

    def call(self):
        return self.function()


def test_a_held_step_that_is_a_function(graphs):
    step, twin = Held(), Held()
    graphs.kept = [step.model.cache, step.model.count]
    function = step.function

    def context():
        return Context(roots=step.roots(), step=step, graphs=graphs)

    with applied_actions([action("step_graph", "step")], context=context) as on:
        for n in range(4):
            if n == 2:
                for one in (step, twin):
                    one.model.w = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
            assert torch.equal(step.call(), twin.call())
        assert on.applications[0].uses == 3 and graphs.captured == 2
    assert step.function is function


def test_outputs_with_a_gradient_are_left_alone(graphs):
    weight = torch.ones(4, requires_grad=True)

    class Closes(torch.nn.Module):
        def forward(self, x):
            return x * weight

    model = Closes()
    with put_on([action("step_graph")], model, graphs=graphs) as on:
        for _ in range(3):
            model(inputs(4)).sum().backward()
        assert graphs.captured == 0 and "gradient" in on.applications[0].notes[0]
    assert weight.grad is not None


@pytest.mark.gpu
def test_cuda_graphs_on_a_gpu():
    model = Model().cuda()
    model.count = model.count.cuda()
    twin = Model().cuda()
    twin.count = twin.count.cuda()
    xs = [torch.randn(2, 4, device="cuda") for _ in range(6)]
    with put_on([action("step_graph")], model) as on:
        for x in xs:
            assert torch.equal(model(x)["out"], twin(x)["out"])
        assert on.applications[0].uses == 5 and not on.applications[0].notes
    assert torch.equal(model.count, twin.count)
