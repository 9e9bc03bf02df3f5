"""What torch's dispatcher says of an operator: what it is given and writes, what waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernel_compass.dispatch_mode import without_compiler
from kernel_compass.records.step_capture import StepTensor

SYNCHRONIZING = {
    "aten::_local_scalar_dense": "a value is read out (`.item()`, `if tensor`)",
    "aten::nonzero": "the result's size depends on data",
    "aten::masked_select": "the result's size depends on data",
    "aten::_unique2": "the result's size depends on data",
    "aten::unique_dim": "the result's size depends on data",
    "aten::unique_consecutive": "the result's size depends on data",
}
WHY_SYNCHRONIZING = (
    "the CPU waits for it and may decide by it, so neither a CUDA graph nor one compiled region "
    "can hold the code on both sides"
)


def mode_of(torch: Any, dispatched: Callable[..., Any]) -> Any:
    """A dispatcher's mode that hands every operator over."""

    @without_compiler
    class StepMode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        """Hands every operator over."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            return dispatched(self, func, args, kwargs or {})

    return StepMode()


class Range:
    """A profiler's range whose own operators no mode sees."""

    def __init__(self, torch: Any, name: str) -> None:
        self._off = torch.utils._python_dispatch._disable_current_modes
        self._range = torch.autograd.profiler.record_function(name)

    def __enter__(self) -> None:
        with self._off():
            self._range.__enter__()

    def __exit__(self, *error: object) -> None:
        with self._off():
            self._range.__exit__(*error)


def is_composite(torch: Any, func: Any) -> bool:
    """Whether an operator is made of others on every device, and no device has its own."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    name = func.name()
    return has(name, "CompositeImplicitAutograd") and not any(
        has(name, device) for device in ("CPU", "CUDA")
    )


def is_traced(tensor: Any) -> bool:
    """Whether a compiler's stand-in for a tensor: it compiles right now."""
    return type(tensor).__name__ in ("FakeTensor", "FunctionalTensor")


def tensors_in(torch: Any, value: Any) -> list[Any]:
    """The tensors in nested lists, tuples and dicts, in their order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [one for part in value for one in tensors_in(torch, part)]
    if isinstance(value, dict):
        return [one for part in value.values() for one in tensors_in(torch, part)]
    return []


def written_by(torch: Any, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors that an operator writes in place, by its schema."""
    if not func._schema.is_mutable:
        return []
    written = [
        value
        for one, value in _named(func, args, kwargs)
        if one.alias_info is not None and one.alias_info.is_write
    ]
    return tensors_in(torch, written)


def text_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """`dim=-1`, `dtype=float32`, ...: what is no tensor, as far as it was given."""
    found = []
    for one, value in _named(func, args, kwargs):
        if value is None or "Tensor" in str(one.type):
            continue
        found.append(f"{one.name}={str(value).replace('torch.', '')}")
    return tuple(found)


def plain_value(value: Any) -> int | float | bool | str | None:
    """An argument as a record holds it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)[:200]


def waits_for(
    name: str, inputs: Sequence[StepTensor], given: Sequence[Any], made: Sequence[Any]
) -> str | None:
    """Why the CPU waits for an operator; `None` = it does not.

    Args:
        name: of the operator.
        inputs: what it was given, described.
        given: the same, the tensors themselves.
        made: its results.
    """
    return SYNCHRONIZING.get(name) or _masked(name, inputs) or _to_cpu(given, made)


def _masked(name: str, inputs: Sequence[StepTensor]) -> str | None:
    """`x[mask]`: how many elements there are depends on data."""
    takes = name in ("aten::index", "aten::index_put", "aten::index_put_")
    masks = [one for one in inputs[1:] if one.dtype == "bool"]
    return "a mask picks elements: their number depends on data" if takes and masks else None


def _to_cpu(given: Sequence[Any], made: Sequence[Any]) -> str | None:
    if any(one.is_cuda for one in given) and any(one.device.type == "cpu" for one in made):
        return "values are copied to the CPU"
    return None


def _named(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The schema's arguments with what was given for them."""
    for at, one in enumerate(func._schema.arguments):
        if at < len(args):
            yield one, args[at]
        elif one.name in kwargs:
            yield one, kwargs[one.name]
