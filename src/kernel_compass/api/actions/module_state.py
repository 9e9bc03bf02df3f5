"""What a module's own Python objects hold: a graph replays what the GPU did, and none of this."""

from __future__ import annotations

from typing import Any

from kernel_compass.kernels.library import torch_library

_INTERNAL = frozenset(["_parameters", "_buffers", "_modules", "forward"])


def state_of(module: Any) -> dict[str, Any]:
    """Attributes of a module and those in it; containers are copied one level deep."""
    found = {}
    for prefix, one in module.named_modules():
        for name, value in vars(one).items():
            if name not in _INTERNAL:
                found[f"{prefix}.{name}".lstrip(".")] = _shallow(value)
        for kind in ("_parameters", "_buffers"):
            for name, value in vars(one)[kind].items():
                found[f"{prefix}.{name}".lstrip(".")] = value
    return found


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Attributes that are not the objects that they were."""
    names = before.keys() | after.keys()
    missing = object()
    return sorted(
        name for name in names if not _same(before.get(name, missing), after.get(name, missing))
    )


def fingerprint(module: Any) -> tuple[int, ...]:
    """Where a module's tensors lie; another, and what was captured reads the old ones."""
    torch = torch_library()
    found = []
    for one in module.modules():
        attributes = vars(one)
        for value in (*attributes["_parameters"].values(), *attributes["_buffers"].values()):
            if value is not None:
                found.append(value.data_ptr())
        found += [v.data_ptr() for v in attributes.values() if isinstance(v, torch.Tensor)]
        found.append(one.training)
    return tuple(found)


def _shallow(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list | set):
        return type(value)(value)
    return value


def _same(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(one[k] is other[k] for k in one)
    if isinstance(one, set):
        return set(map(id, one)) == set(map(id, other))
    if isinstance(one, list):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return isinstance(one, int | float | str | bytes) and one == other
