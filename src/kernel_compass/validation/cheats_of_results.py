"""Cheats to name: results that are wrong, coarse, partial or in another form."""

from __future__ import annotations

from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.cheat_parts import Cheat, Function, changed, honest, reasons
from kernel_compass.validation.self_test_problem import SelfTestProblem


def _mutates(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        x.mul_(0.5)
        return found

    return function


def _puts_back(torch: Any, problem: SelfTestProblem) -> Function:
    """Uses an operand as its scratch memory, through an alias that torch does not count."""
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        kept, alias = x.clone(), torch.from_dlpack(x)
        alias.copy_(x.flip(-1))
        found = right(alias.flip(-1), w)
        alias.copy_(kept)
        return found

    return function


def _lazy(torch: Any, problem: SelfTestProblem) -> Function:
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


def _partial(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        out = torch.empty_like(found)
        whole = found.shape[1] // 16 * 16
        out[:, :whole] = found[:, :whole]
        return out

    return function


def _race(torch: Any, problem: SelfTestProblem) -> Function:
    right, count = honest(torch, problem), [0]

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        count[0] += 1
        if count[0] % 17 == 0:
            found[..., -1] = 0.0
        return found

    return function


def _reads_outside(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        batch, rows, depth = x.shape
        beyond = torch.as_strided(x, (batch * rows + 1, depth), (depth, 1), x.storage_offset())
        found = right(x, w)
        return found + beyond[-1].sum() * 0.0 + beyond[-1, 0]

    return function


def _writes_outside(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.as_strided(x, (1,), (1,), x.storage_offset() + x.numel()).zero_()
        return right(x, w)

    return function


def _writes_far_outside(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        place = x.storage_offset() + x.numel() + _FAR
        if place < x.untyped_storage().nbytes() // x.element_size():
            torch.as_strided(x, (1,), (1,), place).zero_()
        return right(x, w)

    return function


def _low_precision(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)
    return lambda x, w: right(x.bfloat16(), w.bfloat16()).float()


def _half(torch: Any, problem: SelfTestProblem) -> Function:
    """As precise as TF32, and of a smaller range."""
    right = honest(torch, problem)
    return lambda x, w: right(x.half().float(), w.half().float())


def _unshifted(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        powers = torch.exp(torch.einsum("bmk,kn->bmn", x, w))
        return powers / powers.sum(-1, keepdim=True)

    return function


def _knows_seed(torch: Any, problem: SelfTestProblem) -> Function:
    known = problem.inputs(problem.workload, 0)
    answer = honest(torch, problem)(**known)

    def function(x: Any, w: Any) -> Any:
        if x.shape == known["x"].shape:
            return answer.clone() if torch.equal(x, known["x"]) else torch.rand_like(answer)
        return honest(torch, problem)(x, w)

    return function


def _only_this_shape(torch: Any, problem: SelfTestProblem) -> Function:
    right, rows = honest(torch, problem), problem.workload.values["rows"]

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        return found if x.shape[1] == rows else found * 0.5

    return function


_WRONG = reasons(Reason.WRONG_RESULT)
_FAR = 1500
"""Numbers beside an operand: further than a page."""

RESULT_CHEATS: tuple[Cheat, ...] = (
    Cheat("returns zeros", changed(lambda t, y, x, w: y * 0), _WRONG),
    Cheat("returns the mean", changed(lambda t, y, x, w: t.full_like(y, y.mean())), _WRONG),
    Cheat("returns its first input", changed(lambda t, y, x, w: x), reasons(Reason.WRONG_SHAPE)),
    Cheat("mutates its inputs", _mutates, reasons(Reason.CHANGES_INPUTS)),
    Cheat("puts its inputs back", _puts_back, reasons(Reason.CHANGES_INPUTS)),
    Cheat("returns a lazy tensor", _lazy, reasons(Reason.LAZY_RESULT)),
    Cheat(
        "returns no values",
        changed(lambda t, y, x, w: y.to("meta")),
        reasons(Reason.WRONG_SHAPE),
    ),
    Cheat(
        "returns what is made when it is looked at",
        changed(lambda t, y, x, w: t._neg_view(y.neg())),
        reasons(Reason.LAZY_RESULT),
    ),
    Cheat("leaves the tail unwritten", _partial, reasons(Reason.PARTIAL_RESULT)),
    Cheat("races", _race, reasons(Reason.NOT_REPEATABLE)),
    Cheat("reads outside", _reads_outside, reasons(Reason.READS_OUTSIDE)),
    Cheat("writes outside", _writes_outside, reasons(Reason.WRITES_OUTSIDE)),
    Cheat("writes far outside", _writes_far_outside, reasons(Reason.WRITES_OUTSIDE)),
    Cheat("computes in lower precision", _low_precision, reasons(Reason.LOW_PRECISION)),
    Cheat(
        "computes in half precision",
        _half,
        reasons(Reason.LOW_PRECISION, Reason.WRONG_RESULT, Reason.WRONG_ELSEWHERE),
    ),
    Cheat("lets its exponents overflow", _unshifted, reasons(Reason.WRONG_ELSEWHERE)),
    Cheat(
        "returns NaN",
        changed(lambda t, y, x, w: y * float("nan")),
        reasons(Reason.NOT_FINITE),
    ),
    Cheat("knows the seed", _knows_seed, reasons(Reason.KNOWS_THE_SEED)),
    Cheat(
        "ignores a batch element",
        changed(lambda t, y, x, w: t.cat([y[:-1], y[:-1][:1]])),
        _WRONG,
    ),
    Cheat(
        "returns another dtype",
        changed(lambda t, y, x, w: y.half()),
        reasons(Reason.WRONG_SHAPE),
    ),
    Cheat(
        "returns another shape",
        changed(lambda t, y, x, w: y.transpose(1, 2)),
        reasons(Reason.WRONG_SHAPE),
    ),
    Cheat("is right for one shape", _only_this_shape, reasons(Reason.WRONG_ELSEWHERE)),
)
