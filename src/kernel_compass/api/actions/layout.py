"""Copies that only change strides are left out where what reads them takes strides.

`x.contiguous()` gives a stand-in: another view of x. torch functions of this thread that are known
to take strides, and gave the same bits with a copy when they were tried first, read it as it is.
Before anything else reads it, or anything may write to x, the copy is made: late, not wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import ref

from kernel_compass.api.actions.context import Application, Context, Undo
from kernel_compass.api.actions.finding import same_file
from kernel_compass.api.actions.freed_originals import tensors_in
from kernel_compass.api.actions.mode import state_of
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Tensor
from kernel_compass.records.step_action import StepAction

OPS = ("contiguous", "clone", "copy", "_to_copy")
_SIZES = ("dim", "ndimension", "size", "numel", "nelement", "__len__", "element_size")
_LOOKS = frozenset(["__get__", *_SIZES, "untyped_storage", "is_floating_point", "is_complex"])
"""What neither reads nor writes contents, and says the same of a view as of a copy."""


def objection(action: StepAction, _: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    name = str(action.settings.get("op", "contiguous")).rpartition("::")[2]
    if name not in OPS:
        return f"{name} is no copy that can be left out: {', '.join(OPS)}"
    if action.target.function is None and not action.target.shapes:
        return "its target names neither a line nor shapes"
    return None


def put_on(action: StepAction, context: Context) -> Undo:
    """Leave the copy out from now on, in the thread that the actions hold for."""
    application = context.of(action)
    context.layouts.append(application)
    application.on = True
    return lambda: context.layouts.remove(application)


@dataclass(eq=False)
class _Standing:
    """A stand-in for a copy."""

    view: Any
    """Weak: nobody has to hold a copy that nobody reads any more."""
    source: Tensor
    function: Any
    """Makes the copy."""
    memory: int

    def settle(self) -> None:
        """Make the copy, in the stand-in itself."""
        view = self.view()
        if view is not None:
            view.set_(self.function(self.source))


class Copies:
    """The copies of one application that were not made.

    Args:
        context: with the actions on copies.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._standing: dict[int, _Standing] = {}
        self._same: dict[Any, bool] = {}

    def stand_in(self, function: Any, args: Any, kwargs: Any) -> Tensor | None:
        """What stands in for the copy that a function would make; `None` = it is made."""
        if len(args) != 1 or kwargs or type(args[0]) is not torch_library().Tensor:
            return None
        source: Tensor = args[0]
        if source.is_contiguous() or source.requires_grad or source.is_inference():
            return None
        application = self._wanted(source)
        if application is None or not application.fits(self._context.here):
            return None
        application.uses += 1
        view = source[...]
        memory = int(source.untyped_storage()._cdata)
        self._standing[id(view)] = _Standing(ref(view), source, function, memory)
        return view

    def before(self, function: Any, args: Any, kwargs: Any) -> None:
        """Make the copies that a function must not go without."""
        self._standing = {n: one for n, one in self._standing.items() if one.view() is not None}
        if not self._standing or getattr(function, "__name__", "") in _LOOKS:
            return
        readers = {id(one): one for one in tensors_in((args, kwargs))}
        taken = function in takes_strides()
        for number, one in tuple(self._standing.items()):
            reads = number in readers and readers[number] is one.view()
            touches = any(
                int(t.untyped_storage()._cdata) == one.memory
                for n, t in readers.items()
                if not (n == number and reads)
            )
            same = reads and taken and self._gives_the_same(function, args, kwargs, one)
            if (reads and not same) or (touches and not taken):
                self._settle(number)

    def close(self) -> None:
        """Make all that are left."""
        for number in tuple(self._standing):
            self._settle(number)

    def _settle(self, number: int) -> None:
        with torch_library()._C.DisableTorchFunction(), torch_library().no_grad():
            self._standing.pop(number).settle()

    def _gives_the_same(self, function: Any, args: Any, kwargs: Any, one: _Standing) -> bool:
        """Tried once for a function with such operands: the same bits with and without the copy."""
        torch = torch_library()
        operands = tuple(
            (tuple(t.shape), t.stride(), t.dtype, t.device) for t in tensors_in((args, kwargs))
        )
        key = (function, operands)
        if key not in self._same:
            if one.source.is_cuda and torch.cuda.is_current_stream_capturing():
                return False
            with torch._C.DisableTorchFunction(), torch.no_grad():
                view = one.view()
                copy = one.function(one.source)
                swapped = [copy if x is view else x for x in args]
                named = {k: copy if x is view else x for k, x in kwargs.items()}
                with_copy, without = function(*swapped, **named), function(*args, **kwargs)
                self._same[key] = bool(
                    with_copy.stride() == without.stride() and torch.equal(with_copy, without)
                )
        return self._same[key]

    def _wanted(self, source: Tensor) -> Application | None:
        """The action on the line that runs."""
        for one in self._context.layouts:
            target = one.action.target
            if not one.on or (target.shapes and tuple(source.shape) not in target.shapes):
                continue
            if target.function is None or _running(target.function):
                return one
        return None


def _running(line: str) -> bool:
    """Whether `model.py:42` is among the lines that run now."""
    file, _, number = line.rpartition(":")
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if same_file(code.co_filename, file):
            named = number.isdecimal() and frame.f_lineno == int(number)
            return named or code.co_name == number.rpartition(".")[2]
        frame = frame.f_back  # type: ignore[assignment]
    return False


@cache
def takes_strides() -> Mapping[Any, None]:
    """Functions that read an operand in any strides, and whose result does not take them over."""
    torch = torch_library()
    of_tensor, functional = torch.Tensor, torch.nn.functional
    found = [
        functional.linear,
        torch.matmul,
        of_tensor.matmul,
        torch.mm,
        of_tensor.mm,
        torch.bmm,
        of_tensor.bmm,
        torch.addmm,
        of_tensor.addmm,
        torch.baddbmm,
        of_tensor.baddbmm,
    ]
    return dict.fromkeys(found)


def copies_of(number: int, function: Any, args: Any, kwargs: Any) -> Tensor | None:
    """What the innermost application puts in a copy's place."""
    state = state_of(number)
    copies = None if state is None else state[0].copies
    found: Tensor | None = None if copies is None else copies.stand_in(function, args, kwargs)
    return found


@cache
def handlers() -> dict[Any, Any]:
    """torch function -> what stands in for it."""
    torch = torch_library()
    return {torch.Tensor.contiguous: _copied, torch.Tensor.clone: _copied, torch.clone: _copied}


def _copied(mode: Any, function: Any, args: Any, kwargs: Any) -> Any:
    if mode.torch.compiler.is_compiling():
        return None
    return copies_of(mode.number, function, args, kwargs)
