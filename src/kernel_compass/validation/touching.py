"""Operands that are written into and put back before a call returns: looked at while it runs.

Their version counters tell of torch's own writes, from outside and in all calls. What goes past
them (an alias, numpy, a kernel) is seen between two instructions of the candidate's Python code: in
one call, as long as that is quick. What a single instruction does and undoes is not seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

from kernel_compass.validation.outputs import same_bits
from kernel_compass.validation.peeking import of_a_library

MOST_S = 0.5
"""Of comparing, in a call; what comes after it is not looked at."""
MOST_BYTES = 1 << 30
"""Of operands: copies of more are not made."""


class Touched:
    """What was found while a call ran."""

    def __init__(self) -> None:
        self.name: str | None = None
        """Of an operand that held something else for a while."""


def versions(torch: Any, given: Mapping[str, Any]) -> dict[str, int]:
    """How often each operand was written into, as torch counts."""
    tensors = {n: v for n, v in given.items() if isinstance(v, torch.Tensor)}
    return {n: int(v._version) for n, v in tensors.items() if not v.is_inference()}


@contextmanager
def looking_at(torch: Any, given: Mapping[str, Any]) -> Iterator[Touched]:
    """Compare operands with what they were, between any two instructions within the block."""
    found = Touched()
    tensors = [(name, given[name], given[name].clone()) for name in _comparable(torch, given)]
    before = sys.gettrace()

    def compared(frame: FrameType, _event: str, _argument: Any) -> Any:
        if time.monotonic() > deadline or found.name is not None:
            frame.f_trace_opcodes = False
            sys.settrace(None)
            return None
        for name, value, kept in tensors:
            if not same_bits(torch, value, kept):
                found.name = name
        return compared

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        if of_a_library(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        return compared(frame, event, argument)

    apart = import_module("torch._dynamo").disable  # or it compiles what looks at the code
    compared, entered = apart(compared), apart(entered)
    deadline = time.monotonic() + MOST_S
    sys.settrace(entered)
    try:
        yield found
    finally:
        sys.settrace(before)


def _comparable(torch: Any, given: Mapping[str, Any]) -> list[str]:
    """Names of operands that are compared: plain ones, as long as all of them are not too large."""
    found, total = [], 0
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            total += value.numel() * value.element_size()
            if total <= MOST_BYTES:
                found.append(name)
    return found
