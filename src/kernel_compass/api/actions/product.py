"""Products with a constant weight by another implementation; weights are packed once.

`linear`, `matmul` and `@`, `mm`, `bmm`, `addmm` are caught as torch functions, in eager code, while
a CUDA graph is captured, and where `torch.compile` traces; `einsum` in eager code. What is
different from what an entry is for, is torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from kernel_compass.api.actions.constant_weights import Weights
from kernel_compass.api.actions.context import Context, Undo
from kernel_compass.api.actions.einsum_product import as_batched
from kernel_compass.api.actions.mode import state_of
from kernel_compass.api.actions.shared_input import Shared, SharedInputs
from kernel_compass.api.dispatch import Table
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.comparison import Interval
from kernel_compass.records.contracts import Tensor
from kernel_compass.records.dispatch import (
    DispatchEntry,
    DispatchTable,
    RegimeWin,
    TokenRange,
    WorkloadPattern,
    ordered,
)
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import StepAction, StepEntry, StepTarget
from kernel_compass.records.workload import Op

Patterns = dict[tuple[int, ...], tuple[tuple[int, int], ...]]
"""(H, K, N) of a batched weight, (K, N) of a linear layer's -> ranges of tokens with an entry."""
LINEAR, TURNED, BATCHED = "linear", "turned", "batched"
"""How a weight lies: (N, K), (K, N), (H, K, N)."""
_LIBRARIES: list[Any] = []


def objection(action: StepAction, context: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    target = action.target
    if target.workload is None:
        return "its target names no product"
    if action.candidate is None or action.candidate.format is None:
        return "it names no implementation with its number format"
    if target.module is not None and context.module(target.module) is None:
        return f"there is no module {target.module!r}"
    if target.parts:
        return _parts_objection(target)
    return None


def _parts_objection(target: StepTarget) -> str | None:
    work = target.workload
    assert work is not None
    if target.module is not None:
        return "products of one input are not limited to a module"
    if work.op is not Op.LINEAR or len(target.parts) < 2 or sum(target.parts) != work.columns:
        return f"{target.parts} columns do not make up {work.shape_text}"
    return None


def put_on(action: StepAction, context: Context) -> Undo:
    """Add it to what the mode's tables hold."""
    entry = entry_of(action, context)
    if action.target.parts:
        shared = Shared(entry, action.target.parts)
        context.shared.append(shared)
        context.of(action).on = True
        return lambda: context.shared.remove(shared)
    context.products.append(entry)
    context.of(action).on = True
    return lambda: context.products.remove(entry)


def entry_of(action: StepAction, context: Context, of: StepEntry | None = None) -> DispatchEntry:
    """An action as an entry of a dispatch table; of this machine where it has none of its own."""
    work, candidate = action.target.workload, action.candidate
    assert work is not None and candidate is not None
    application = context.of(action)
    speedup = of.speedup if of is not None else Interval(1.0, 1.0, 1.0, 0.95)
    pattern = WorkloadPattern(
        work.op, work.heads, work.reduction, work.columns, (TokenRange(work.tokens, work.tokens),)
    )
    return DispatchEntry(
        pattern,
        application.gpu or context.here(),
        (RegimeWin(Regime.IN_SITU, speedup),),
        candidate,
        "this application",
        len(context.products) + len(context.shared) + 1,
    )


def weights_of(context: Context, entries: Sequence[DispatchEntry]) -> Weights:
    """The weights of an application, none packed yet."""
    table = Table(ordered(entries, context.environments), context.implementation_of, context.target)
    constants: list[Tensor] = []
    for root in (context.roots or {}).values():
        if hasattr(root, "parameters"):
            constants += [*root.parameters(), *root.buffers()]
    return Weights(table, constants, context.free_originals, _only(context))


def shared_of(context: Context, weights: Weights) -> SharedInputs:
    """The joined weights of an application, none packed yet."""
    entries = ordered([one.entry for one in context.shared], context.environments)
    table = Table(entries, context.implementation_of, context.target)
    return SharedInputs(context.shared, table, weights, context.here)


def _only(context: Context) -> list[Tensor] | None:
    """The tensors of the modules that products are limited to, where all of them are."""
    modules = [
        one.action.target.module for one in context.applications if one.action.target.workload
    ]
    if not modules or None in modules:
        return None
    found = [context.module(name) for name in modules if name is not None]
    return [one for module in found if module is not None for one in module.parameters()]


def patterns_of(table: DispatchTable, shared: Sequence[Shared] = ()) -> Patterns:
    """What the mode looks at: constants when it is traced."""
    found: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for entry in table.contributions:
        p = entry.pattern
        batched = p.op is Op.BMM
        sizes = (p.heads, p.reduction, p.columns) if batched else (p.reduction, p.columns)
        found.setdefault(sizes, set()).update((one.low, one.high) for one in p.tokens)
    for group in shared:
        for columns in group.parts:
            part = (group.entry.pattern.reduction, columns)
            found.setdefault(part, set()).update((one.low, one.high) for one in group.tokens)
    return {sizes: tuple(sorted(ranges)) for sizes, ranges in found.items()}


@cache
def handlers() -> dict[Any, Callable[..., Any]]:
    """torch function -> what stands in for it; where it answers `None`, torch's own is called."""
    _operator()
    torch = torch_library()
    torch.compiler.assume_constant_result(_ranges_of)  # asked once, when code is traced
    of_tensor = torch.Tensor
    return {
        torch.nn.functional.linear: _linear,
        torch.matmul: _matmul,
        of_tensor.matmul: _matmul,
        of_tensor.__matmul__: _matmul,
        torch.mm: _matmul,
        of_tensor.mm: _matmul,
        torch.bmm: _matmul,
        of_tensor.bmm: _matmul,
        torch.addmm: _addmm,
        of_tensor.addmm: _addmm,
        torch.einsum: _einsum,
        of_tensor.data.__get__: _data,
    }


def _linear(mode: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if len(args) < 2 or (kwargs and set(kwargs) != {"bias"}):
        return None
    bias = args[2] if len(args) > 2 else kwargs.get("bias")
    return _product(mode, LINEAR, args[0], args[1], bias)


def _matmul(mode: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 2 or kwargs or not isinstance(args[1], mode.torch.Tensor):
        return None
    a, weight = args
    form = TURNED if weight.dim() == 2 else BATCHED
    fits = a.dim() == weight.dim() or (form == TURNED and a.dim() > 2)
    return _product(mode, form, a, weight, None) if fits else None


def _addmm(mode: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 3 or kwargs or args[1].dim() != 2:
        return None
    return _product(mode, TURNED, args[1], args[2], args[0])


def _einsum(mode: Any, _: Any, args: Any, kwargs: Any) -> Any:
    if mode.torch.compiler.is_compiling() or len(args) != 3 or kwargs:
        return None
    equation, a, weight = args
    lowered = None
    if isinstance(equation, str):
        lowered = as_batched(equation, a, weight, mode.products)
    if lowered is None:
        return None
    found = _product(mode, BATCHED, lowered.a, lowered.weight, None)
    return None if found is None else lowered.finish(found)


def _data(mode: Any, _: Any, args: Any, __: Any) -> Any:
    if not mode.torch.compiler.is_compiling():
        state = state_of(mode.number)
        if state is not None and state[0].weights is not None:
            state[0].weights.expose(args[0])
            if state[0].shared is not None:
                state[0].shared.expose(args[0])


def _product(mode: Any, form: str, a: Any, weight: Any, bias: Any) -> Any:
    """The product by an entry; `None` = it is torch's own."""
    torch = mode.torch
    if not (isinstance(a, torch.Tensor) and isinstance(weight, torch.Tensor)):
        return None
    shape = tuple(weight.shape)
    if form == LINEAR:
        shape = shape[::-1]
    ranges = mode.products.get(shape)
    sizes = a.shape
    if ranges is None or len(sizes) == 0 or sizes[-1] != shape[-2]:
        return None
    compiling = torch.compiler.is_compiling()
    if compiling:
        ranges = _ranges_of(mode.number, shape)
    tokens = sizes[1] if form == BATCHED else sizes[0]
    if form != BATCHED and len(sizes) != 2:
        tokens = a.numel() // sizes[-1]
    if not _covered(ranges, tokens):
        return None
    if torch.is_grad_enabled() and (a.requires_grad or weight.requires_grad):
        return None
    if compiling:
        return torch.ops.kernel_compass.applied_product(a, weight, bias, form, mode.number)
    return _eager(torch, mode.number, form, a, weight, bias)


def _covered(ranges: Any, tokens: Any) -> bool:
    for low, high in ranges:  # noqa: SIM110 -- a generator costs more than all else here
        if low <= tokens <= high:
            return True
    return False


def _eager(torch: Any, number: int, form: str, a: Any, weight: Any, bias: Any) -> Any:
    plain = (torch.Tensor, torch.nn.Parameter)
    if type(a) not in plain or type(weight) not in plain:
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if torch.is_autocast_enabled(a.device.type):
        return None
    return _computed(number, form, a, weight, bias, followed=True)


def _computed(
    number: int,
    form: str,
    a: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    followed: bool = False,
) -> Any:
    state = state_of(number)
    weights = None if state is None else state[0].weights
    if weights is None:
        return None
    assert state is not None
    with state[0].context.bare():
        out = None
        if followed and form == LINEAR and state[0].shared is not None:
            out = state[0].shared.followed(a, weight)
        if out is None:
            if state[0].shared is not None and not state[0].has_own(weight.shape):
                return None
            handle = weights.handle(weight, form == TURNED)
            out = None if handle is None else handle.computed(a)
            if out is None:
                return None
            weights.uses += 1
        return out if bias is None else out + bias


def _together(a: Tensor, weights: list[Tensor], number: int) -> Tensor:
    """Products of one input behind one another at run time, in code that `torch.compile` made."""
    state = state_of(number)
    if state is not None and state[0].shared is not None:
        with state[0].context.bare():
            found: Tensor | None = state[0].shared.product(a, weights)
        if found is not None:
            return found
    return _each(a, weights, number)


def _each(a: Tensor, weights: list[Tensor], _: int) -> Tensor:
    torch = torch_library()
    return torch.cat([torch.nn.functional.linear(a, one) for one in weights], -1)


def _operated(a: Tensor, weight: Tensor, bias: Tensor | None, form: str, number: int) -> Tensor:
    """The operator at run time, in code that `torch.compile` made."""
    found = _computed(number, form, a, weight, bias)
    return _torchs(a, weight, bias, form, number) if found is None else found


def _torchs(a: Tensor, weight: Tensor, bias: Tensor | None, form: str, _: int) -> Tensor:
    torch = torch_library()
    if form == LINEAR:
        return torch.nn.functional.linear(a, weight, bias)
    if bias is not None:
        return torch.addmm(bias, a, weight)
    return torch.matmul(a, weight)


def _ranges_of(number: int, sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Tokens with an entry that was measured on this machine: where none was, nothing in compiled
    code is replaced."""
    state = state_of(number)
    found: tuple[tuple[int, int], ...] = () if state is None else state[0].ranges_here(sizes)
    return found


@cache
def _operator() -> None:
    torch = torch_library()
    library = torch.library.Library("kernel_compass", "FRAGMENT")
    library.define(
        "applied_product(Tensor a, Tensor weight, Tensor? bias, str form, int mode) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    library.impl("applied_product", _operated, "CompositeExplicitAutograd")
    torch.library.register_fake("kernel_compass::applied_product", _torchs, lib=library)
    library.define(
        "applied_products(Tensor a, Tensor[] weights, int mode) -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    library.impl("applied_products", _together, "CompositeExplicitAutograd")
    torch.library.register_fake("kernel_compass::applied_products", _each, lib=library)
    _LIBRARIES.append(library)  # what it defined goes with it
