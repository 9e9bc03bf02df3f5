"""Cheats to name: results and operands that are kept, and given out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.cheat_parts import Cheat, Function, honest, reasons
from kernel_compass.validation.self_test_problem import SelfTestProblem


def _stale_buffer(torch: Any, problem: SelfTestProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = x.shape
        if key not in kept:
            kept[key] = right(x, w)
        return kept[key]

    return function


def _one_buffer(torch: Any, problem: SelfTestProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        return kept.setdefault(found.shape, torch.empty_like(found)).copy_(found)

    return function


def _buffers_in_turns(torch: Any, problem: SelfTestProblem) -> Function:
    right, kept, calls = honest(torch, problem), {}, [0]

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        calls[0] += 1
        key = (found.shape, calls[0] % _BUFFERS)
        return kept.setdefault(key, torch.empty_like(found)).copy_(found)

    return function


def _into_the_last_operand(torch: Any, problem: SelfTestProblem) -> Function:
    """Scratch memory that is the caller's: an operand of the call before."""
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        memory = kept.get(x.shape)
        kept[x.shape] = torch.from_dlpack(x)
        return right(x if memory is None else memory.copy_(x), w)

    return function


def _cached_by(key_of: Callable[[Any], Any]) -> Callable[[Any, Any], Function]:
    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right, kept = honest(torch, problem), {}

        def function(x: Any, w: Any) -> Any:
            key = (key_of(x), key_of(w), x.shape)
            if key not in kept:
                kept[key] = (x, right(x, w))
            return kept[key][1].clone()

        return function

    return make


def _caches_packed_activations(torch: Any, problem: SelfTestProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = (x.data_ptr(), x.shape)
        if key not in kept:
            kept[key] = x.transpose(1, 2).contiguous()
        return right(kept[key].transpose(1, 2), w)

    return function


def _compares_with_the_last(torch: Any, problem: SelfTestProblem) -> Function:
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


def _does_a_little(torch: Any, problem: SelfTestProblem) -> Function:
    right, kept = honest(torch, problem), {}

    def function(x: Any, w: Any) -> Any:
        key = (x.shape, float(x.sum()), float(w.sum()))
        if key not in kept:
            kept[key] = right(x, w)
        else:
            right(x[:, :1], w)
        return kept[key].clone()

    return function


def _after_ninety(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Function]:
    """Honest for more calls than a judge might be thought to make: `change(torch, x, w)` then."""

    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right, calls = honest(torch, problem), [0]

        def function(x: Any, w: Any) -> Any:
            calls[0] += 1
            return right(x, w) if calls[0] <= _NINETY else right(*change(torch, x, w))

        return function

    return make


def _keeps_the_ninetieth(torch: Any, problem: SelfTestProblem) -> Function:
    right, calls, kept = honest(torch, problem), [0], {}

    def function(x: Any, w: Any) -> Any:
        calls[0] += 1
        if calls[0] <= _NINETY or x.shape not in kept:
            kept[x.shape] = right(x, w)
        return kept[x.shape].clone()

    return function


def _every_fiftieth(torch: Any, problem: SelfTestProblem) -> Function:
    right, calls = honest(torch, problem), [0]

    def function(x: Any, w: Any) -> Any:
        calls[0] += 1
        return right(x, w) * (0.0 if calls[0] % 50 == 0 else 1.0)

    return function


_NINETY = 90
_BUFFERS = 7
_LATER = reasons(Reason.NOT_REPEATABLE, Reason.STALE_RESULT)
_WRONG = reasons(Reason.WRONG_RESULT)
_STALE = reasons(Reason.STALE_RESULT, Reason.CACHES_BY_IDENTITY)

MEMORY_CHEATS: tuple[Cheat, ...] = (
    Cheat("returns a stale buffer", _stale_buffer, _STALE),
    Cheat("hands out one buffer again and again", _one_buffer, _STALE),
    Cheat("hands out a few buffers in turns", _buffers_in_turns, reasons(Reason.STALE_RESULT)),
    Cheat(
        "takes the last operand's memory",
        _into_the_last_operand,
        reasons(Reason.CHANGES_INPUTS),
    ),
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
    Cheat("compares with the last call", _compares_with_the_last, reasons(Reason.NO_WORK)),
    Cheat("keeps its result after ninety calls", _keeps_the_ninetieth, _LATER),
    Cheat(
        "rounds its operands after ninety calls",
        _after_ninety(lambda t, x, w: (x.bfloat16().float(), w.bfloat16().float())),
        _LATER,
    ),
    Cheat(
        "leaves out a channel after ninety calls",
        _after_ninety(lambda t, x, w: (x[..., :-1], w[:-1])),
        _LATER,
    ),
    Cheat(
        "is wrong at every fiftieth call",
        _every_fiftieth,
        _LATER | _WRONG | reasons(Reason.WRONG_ELSEWHERE),
    ),
    Cheat("does a little for known contents", _does_a_little, _STALE | reasons(Reason.NO_WORK)),
)
