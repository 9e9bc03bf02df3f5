"""A subject by name, so that any process can build it anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.subject import Subject, subject_of

_FOLLOWS = "Name it as package.module:function or path/to/file.py:function."


@dataclass(frozen=True)
class Recipe:
    """`make(device, **arguments)` returns the subject; both must survive JSON.

    Every fresh process calls it again, so that operands get new places and new random values.
    """

    name: str
    """`package.module:function`, or `path/to/file.py:function`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def build(self, device: TimingDevice) -> Subject:
        """The subject on this device.

        Raises:
            UsageError: there is no such function, or it returns nothing that can be timed.
        """
        made = _function(self.name)(device, **self.arguments)
        if not isinstance(made, Subject) and not callable(made):
            kind = type(made).__name__
            raise UsageError(f"{self.name} returned a {kind}.", "Return a Subject or a callable.")
        return subject_of(made)

    def document(self) -> dict[str, Any]:
        """As JSON, the file's place made absolute."""
        place, _, function = self.name.rpartition(":")
        if place.endswith(".py"):
            place = str(Path(place).resolve())
        return {"name": f"{place}:{function}", "arguments": dict(self.arguments)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Recipe:
        """What `document` wrote."""
        return cls(document["name"], document["arguments"])


def _function(name: str) -> Callable[..., object]:
    place, _, function = name.rpartition(":")
    if not place or not function:
        raise UsageError(f"{name!r} names no function.", _FOLLOWS)
    module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place, name)
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"{place} has no function {function!r}.", _FOLLOWS)
    made: Callable[..., object] = found
    return made


def _from_path(place: str, name: str) -> object:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not place.startswith(error.name):
            raise  # what the module itself imports is missing
        raise UsageError(f"There is no module {place!r} for {name!r}.", _FOLLOWS) from None


def _from_file(path: Path) -> object:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", _FOLLOWS)
    name = f"kernel_compass_recipe_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # Triton looks its kernels' modules up by name
    spec.loader.exec_module(module)
    return module
