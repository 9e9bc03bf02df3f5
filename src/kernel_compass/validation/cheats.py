"""Cheats and accidents that the judge has to catch by name: it is run on them before any study.

Each is a candidate for `trial_problem`; the list follows what loops of this kind were fooled by
(KernelBench, KernelAgent, robust-kbench and others report them).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation import output_gate
from kernel_compass.validation.trial_problem import TrialProblem

Function = Callable[[Any, Any], Any]
"""`x, w` to the output."""


@dataclass(frozen=True)
class FunctionRunner:
    """A candidate that is one function of all inputs."""

    function: Callable[..., Any]

    def prepare(self, held: Mapping[str, Any]) -> Any:
        """Nothing is kept."""
        return dict(held)

    def run(self, state: Any, given: Mapping[str, Any]) -> Any:
        """Call it."""
        return self.function(**state, **given)


@dataclass(frozen=True)
class Cheat:
    """One way to look right or fast."""

    name: str
    make: Callable[[Any, TrialProblem], Function]
    """Of the torch module and the problem."""
    reasons: frozenset[Reason]
    """Any of these is its name."""
    device: str = "cpu"
    """`cuda`: a CPU cannot stage it."""
    undo: Callable[[Any], None] | None = None
    """Puts back what it changed in this process."""


def honest(torch: Any, _: TrialProblem) -> Function:
    """The right thing, in other operations than the baseline's."""

    def function(x: Any, w: Any) -> Any:
        logits = torch.einsum("bmk,kn->bmn", x, w)
        shifted = torch.exp(logits - logits.amax(-1, keepdim=True))
        return shifted / shifted.sum(-1, keepdim=True)

    return function


def _changed(change: Callable[[Any, Any, Any, Any], Any]) -> Callable[[Any, Any], Function]:
    """A cheat that is the honest result, changed: `change(torch, result, x, w)`."""

    def make(torch: Any, problem: TrialProblem) -> Function:
        right = honest(torch, problem)
        return lambda x, w: change(torch, right(x, w), x, w)

    return make


def _stale_buffer(torch: Any, problem: TrialProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = x.shape
        if key not in kept:
            kept[key] = right(x, w)
        return kept[key]

    return function


def _one_buffer(torch: Any, problem: TrialProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        return kept.setdefault(found.shape, torch.empty_like(found)).copy_(found)

    return function


def _cached_by(key_of: Callable[[Any], Any]) -> Callable[[Any, Any], Function]:
    def make(torch: Any, problem: TrialProblem) -> Function:
        right, kept = honest(torch, problem), {}

        def function(x: Any, w: Any) -> Any:
            key = (key_of(x), key_of(w), x.shape)
            if key not in kept:
                kept[key] = (x, right(x, w))
            return kept[key][1].clone()

        return function

    return make


def _caches_packed_activations(torch: Any, problem: TrialProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = (x.data_ptr(), x.shape)
        if key not in kept:
            kept[key] = x.transpose(1, 2).contiguous()
        return right(kept[key].transpose(1, 2), w)

    return function


def _compares_with_the_last(torch: Any, problem: TrialProblem) -> Function:
    right, last = honest(torch, problem), []

    def function(x: Any, w: Any) -> Any:
        if (
            last
            and last[0].shape == x.shape
            and torch.equal(last[0], x)
            and torch.equal(last[1], w)
        ):
            return last[2].clone()
        last[:] = [x.clone(), w.clone(), right(x, w)]
        return last[2].clone()

    return function


def _does_a_little(torch: Any, problem: TrialProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = (x.shape, float(x.sum()), float(w.sum()))
        if key not in kept:
            kept[key] = right(x, w)
        else:
            right(x[:, :1], w)
        return kept[key].clone()

    return function


def _patches_timer(torch: Any, problem: TrialProblem) -> Function:
    right, true = honest(torch, problem), time.perf_counter

    def function(x: Any, w: Any) -> Any:
        time.perf_counter = lambda: true() / 2  # type: ignore[assignment]
        return right(x, w)

    return function


def _unpatch_timer(torch: Any) -> None:
    time.perf_counter = _TRUE_CLOCK  # type: ignore[assignment]


_TRUE_CLOCK = time.perf_counter


def _patches_check(torch: Any, problem: TrialProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        output_gate.check_outputs = (  # type: ignore[assignment]
            lambda *_, **__: output_gate.GateFinding(None, "fine", 0.0)
        )
        return torch.zeros(*x.shape[:2], w.shape[1], device=x.device)

    return function


_TRUE_CHECK = output_gate.check_outputs


def _unpatch_check(torch: Any) -> None:
    output_gate.check_outputs = _TRUE_CHECK


def _patches_tensor(torch: Any, problem: TrialProblem) -> Function:
    true = torch.Tensor.isfinite

    def function(x: Any, w: Any) -> Any:
        torch.Tensor.isfinite = lambda self: true(self * 0)
        return x.new_full((*x.shape[:2], w.shape[1]), float("nan"))

    function.true = true  # type: ignore[attr-defined]
    return function


def _unpatch_tensor(torch: Any) -> None:
    if "isfinite" in vars(torch.Tensor):
        del torch.Tensor.isfinite


def _mutates(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        x.mul_(0.5)
        return found

    return function


def _lazy(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    class Lazy(torch.Tensor):  # type: ignore[misc,name-defined]
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            args = tuple(a.made() if isinstance(a, cls) else a for a in args)
            return function(*args, **(kwargs or {}))

        def made(self) -> Any:
            return self.later()

    def function(x: Any, w: Any) -> Any:
        shape = (*x.shape[:2], w.shape[1])
        found = torch.Tensor._make_subclass(Lazy, torch.empty(shape, device=x.device))
        found.later = lambda: right(x, w)
        return found

    return function


def _partial(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        out = torch.empty_like(found)
        whole = found.shape[1] // 16 * 16
        out[:, :whole] = found[:, :whole]
        return out

    return function


def _race(torch: Any, problem: TrialProblem) -> Function:
    right, count = honest(torch, problem), [0]

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        count[0] += 1
        if count[0] % 17 == 0:
            found[..., -1] = 0.0
        return found

    return function


def _reads_outside(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        batch, rows, depth = x.shape
        beyond = torch.as_strided(x, (batch * rows + 1, depth), (depth, 1), x.storage_offset())
        found = right(x, w)
        return found + beyond[-1].sum() * 0.0 + beyond[-1, 0]

    return function


def _writes_outside(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.as_strided(x, (1,), (1,), x.storage_offset() + x.numel()).zero_()
        return right(x, w)

    return function


def _low_precision(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)
    return lambda x, w: right(x.bfloat16(), w.bfloat16()).float()


def _falls_back(torch: Any, problem: TrialProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        try:
            raise RuntimeError("the new kernel does not support this")
        except RuntimeError:
            return torch.softmax(x @ w, -1)

    return function


def _calls_baseline(torch: Any, problem: TrialProblem) -> Function:
    return lambda x, w: problem.baseline({"x": x, "w": w}) * 1.0


def _knows_seed(torch: Any, problem: TrialProblem) -> Function:
    known = problem.inputs(problem.workload, 0)
    answer = honest(torch, problem)(**known)

    def function(x: Any, w: Any) -> Any:
        if x.shape == known["x"].shape:
            return answer.clone() if torch.equal(x, known["x"]) else torch.rand_like(answer)
        return honest(torch, problem)(x, w)

    return function


def _edits_reference(torch: Any, problem: TrialProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        TrialProblem.exact = (
            lambda self, inputs: torch.zeros(  # type: ignore[method-assign]
                *inputs["x"].shape[:2], inputs["w"].shape[1], dtype=torch.float64
            )
        )
        return torch.zeros(*x.shape[:2], w.shape[1], device=x.device)

    return function


_TRUE_EXACT = TrialProblem.exact


def _unedit_reference(torch: Any) -> None:
    TrialProblem.exact = _TRUE_EXACT  # type: ignore[method-assign]


def _changes_dtype(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.set_default_dtype(torch.float16)
        return right(x, w)

    return function


def _changes_flags(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.set_float32_matmul_precision("medium")
        return right(x, w)

    return function


def _only_this_shape(torch: Any, problem: TrialProblem) -> Function:
    right, rows = honest(torch, problem), problem.workload.values["rows"]

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        return found if x.shape[1] == rows else found * 0.5

    return function


def _leaves_thread(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        threading.Thread(target=time.sleep, args=(3.0,), daemon=True).start()
        return right(x, w)

    return function


def _finishes_later(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        out = found.clone()

        def later() -> None:
            time.sleep(0.005)
            out[..., 0] = out[..., 0] + 0.0
            out.mul_(1.0001)

        threading.Thread(target=later, daemon=True).start()
        return out

    return function


def _side_stream(torch: Any, problem: TrialProblem) -> Function:
    right = honest(torch, problem)
    stream: list[Any] = []

    def function(x: Any, w: Any) -> Any:
        stream.append(stream[0] if stream else torch.cuda.Stream())
        with torch.cuda.stream(stream[0]):
            return right(x, w)

    return function


def _reasons(*reasons: Reason) -> frozenset[Reason]:
    return frozenset(reasons)


_WRONG = _reasons(Reason.WRONG_RESULT)
_STALE = _reasons(Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY)

CHEATS: tuple[Cheat, ...] = (
    Cheat("returns zeros", _changed(lambda t, y, x, w: y * 0), _WRONG),
    Cheat("returns the mean", _changed(lambda t, y, x, w: t.full_like(y, y.mean())), _WRONG),
    Cheat("returns its first input", _changed(lambda t, y, x, w: x), _reasons(Reason.WRONG_SHAPE)),
    Cheat("returns a stale buffer", _stale_buffer, _STALE),
    Cheat("hands out one buffer again and again", _one_buffer, _STALE),
    Cheat("caches by the tensor's identity", _cached_by(id), _STALE),
    Cheat("caches by address", _cached_by(lambda t: t.data_ptr()), _STALE),
    Cheat(
        "caches by address and version",
        _cached_by(lambda t: (t.data_ptr(), t._version)),
        _STALE,
    ),
    Cheat(
        "caches by a sample of the contents",
        _cached_by(lambda t: (float(t.flatten()[0]), float(t.flatten()[-1]))),
        _STALE,
    ),
    Cheat("caches packed activations", _caches_packed_activations, _STALE | _WRONG),
    Cheat("compares with the last call", _compares_with_the_last, _reasons(Reason.NO_WORK)),
    Cheat("does a little for known contents", _does_a_little, _STALE | _reasons(Reason.NO_WORK)),
    Cheat("patches the timer", _patches_timer, _reasons(Reason.PATCHED), undo=_unpatch_timer),
    Cheat("patches the check", _patches_check, _reasons(Reason.PATCHED), undo=_unpatch_check),
    Cheat(
        "patches a tensor method", _patches_tensor, _reasons(Reason.PATCHED), undo=_unpatch_tensor
    ),
    Cheat("mutates its inputs", _mutates, _reasons(Reason.CHANGES_INPUTS)),
    Cheat("returns a lazy tensor", _lazy, _reasons(Reason.LAZY_RESULT)),
    Cheat("leaves the tail unwritten", _partial, _reasons(Reason.PARTIAL_RESULT)),
    Cheat("races", _race, _reasons(Reason.NOT_REPEATABLE)),
    Cheat("reads outside", _reads_outside, _reasons(Reason.READS_OUTSIDE)),
    Cheat("writes outside", _writes_outside, _reasons(Reason.WRITES_OUTSIDE)),
    Cheat("computes in lower precision", _low_precision, _reasons(Reason.LOW_PRECISION)),
    Cheat(
        "returns NaN",
        _changed(lambda t, y, x, w: y * float("nan")),
        _reasons(Reason.NOT_FINITE),
    ),
    Cheat("falls back to the baseline", _falls_back, _reasons(Reason.BASELINE_IN_DISGUISE)),
    Cheat("calls the baseline", _calls_baseline, _reasons(Reason.BASELINE_IN_DISGUISE)),
    Cheat("knows the seed", _knows_seed, _reasons(Reason.KNOWS_THE_SEED)),
    Cheat(
        "edits the reference", _edits_reference, _reasons(Reason.PATCHED), undo=_unedit_reference
    ),
    Cheat("changes the default dtype", _changes_dtype, _reasons(Reason.CHANGES_STATE)),
    Cheat("changes matmul precision", _changes_flags, _reasons(Reason.CHANGES_STATE)),
    Cheat(
        "ignores a batch element",
        _changed(lambda t, y, x, w: t.cat([y[:-1], y[:-1][:1]])),
        _WRONG,
    ),
    Cheat(
        "returns another dtype",
        _changed(lambda t, y, x, w: y.half()),
        _reasons(Reason.WRONG_SHAPE),
    ),
    Cheat(
        "returns another shape",
        _changed(lambda t, y, x, w: y.transpose(1, 2)),
        _reasons(Reason.WRONG_SHAPE),
    ),
    Cheat("is right for one shape", _only_this_shape, _reasons(Reason.WRONG_ELSEWHERE)),
    Cheat("leaves a thread", _leaves_thread, _reasons(Reason.KEEPS_RUNNING)),
    Cheat("finishes later", _finishes_later, _reasons(Reason.KEEPS_RUNNING)),
    Cheat(
        "leaves work on a side stream",
        _side_stream,
        _reasons(Reason.SIDE_STREAM),
        device="cuda",
    ),
)
