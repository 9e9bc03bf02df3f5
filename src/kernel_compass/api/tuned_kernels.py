"""Triton kernels that a function launches: found by looking at it, with their configurations.

A point of the space of an autotuned kernel is a configuration of its own, written as
`kernel.PARAMETER`. A trial pins one: the autotuner then launches that one and measures nothing.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.contracts import Config

MOST_CONFIGS = 1024
"""Of several kernels together; beyond, one of them varies at a time."""
MOST_OF_PARAMETERS = 256
_DEPTH = 6
_OPTIONS = {"num_warps": 32, "num_stages": 8, "num_ctas": 16}
"""Of a launch, with their largest values."""
_LEAST_BLOCK = 16
"""`tl.dot` takes no less."""


class ConfigPruned(Exception):
    """A kernel's own `prune_configs_by` rules out a configuration for these arguments."""


@dataclass(frozen=True)
class LaunchedKernel:
    """A kernel that a function launches."""

    name: str
    parameters: tuple[str, ...]
    """Its `tl.constexpr` arguments."""
    tuner: Any = None
    """Its `Autotuner`; `None` = it has none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Arguments whose values decide which of its configurations is best."""
        return tuple(self.tuner.keys) if self.tuner is not None else ()

    @property
    def configs(self) -> tuple[Config, ...]:
        """Of its autotuner, each once, as a trial names them."""
        found: list[Config] = []
        for one in () if self.tuner is None else self.tuner.configs:
            values = self._named(one)
            if values not in found:
                found.append(values)
        return tuple(found)

    def chosen(self, config: Config) -> Any:
        """The autotuner's own object for a configuration.

        Raises:
            UsageError: it has no such one.
        """
        wanted = {n: v for n, v in config.items() if n.startswith(f"{self.name}.")}
        for one in self.tuner.configs:
            if self._named(one) == wanted:
                return one
        text = ", ".join(f"{n}={v}" for n, v in wanted.items())
        known = "; ".join(
            ", ".join(f"{n}={v}" for n, v in values.items()) for values in self.configs[:4]
        )
        raise UsageError(
            f"The autotuner of {self.name} has no configuration {text}.", f"It has {known}, ..."
        )

    def _named(self, one: Any) -> Config:
        given = {**one.kwargs, "num_warps": one.num_warps, "num_stages": one.num_stages}
        if getattr(one, "num_ctas", 1) not in (1, None):
            given["num_ctas"] = one.num_ctas
        if getattr(one, "maxnreg", None) is not None:
            given["maxnreg"] = one.maxnreg
        return {
            f"{self.name}.{name}": value if isinstance(value, int | str) else repr(value)
            for name, value in given.items()
        }


def launched_kernels(function: Callable[..., Any]) -> tuple[LaunchedKernel, ...]:
    """Kernels that a function names, itself or through functions of files of the user's.

    Raises:
        UsageError: two autotuned ones have the same name.
    """
    found: dict[int, LaunchedKernel] = {}
    for one in _named_in(function, _DEPTH, set()):
        if _is_kernel(one):
            found.setdefault(id(one), _described(one))
    kernels = tuple(found.values())
    tuned = [one.name for one in kernels if one.tuner is not None]
    for name in tuned:
        if tuned.count(name) > 1:
            raise UsageError(
                f"Two autotuned kernels are called {name}.", "Give them different names."
            )
    return kernels


def space_of(
    function: Callable[..., Any], given: Mapping[str, Any], listed: Sequence[Config] | None
) -> tuple[Config, ...]:
    """The space of a candidate, the first its default.

    Each listed configuration, or those of its parameters, with each configuration of the kernels
    that it launches. Parameters are those with a power of two as default that are called as a
    `tl.constexpr` of a launched kernel or an option of a launch is.

    Args:
        function: the candidate.
        given: inputs of the problem, by name.
        listed: what the file lists; `None` = nothing.
    """
    kernels = launched_kernels(function)
    tuned = [one for one in kernels if one.tuner is not None]
    own = listed if listed is not None else _of_parameters(function, given, kernels)
    if any(n.startswith(f"{one.name}.") for one in tuned for config in own for n in config):
        return tuple(own)  # the file names them itself
    parts = [tuple(own), *(one.configs for one in tuned)]
    return tuple(_joined(choice) for choice in _choices(parts, MOST_CONFIGS))


def split(config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a function is called with, and what its kernels are pinned to."""
    pins = {n: v for n, v in config.items() if "." in n}
    return {n: v for n, v in config.items() if n not in pins}, pins


def pins_of(function: Callable[..., Any], config: Config) -> tuple[Pin, ...]:
    """What holds each kernel to its configuration.

    Args:
        function: launches them.
        config: of a trial.

    Raises:
        UsageError: it launches no such kernel, or that has no such configuration.
    """
    tuned = {one.name: one for one in launched_kernels(function) if one.tuner is not None}
    names = dict.fromkeys(name.rpartition(".")[0] for name in split(config)[1])
    for name in names:
        if name not in tuned:
            raise UsageError(
                f"The candidate launches no autotuned kernel {name!r}.",
                f"It launches {', '.join(tuned) or 'none'}.",
            )
    return tuple(Pin(tuned[name].tuner, tuned[name].chosen(config)) for name in names)


class Pin:
    """Holds an autotuner to one of its configurations.

    Hooks of the configuration run at every launch; those of the tuner (`pre_hook`,
    `reset_to_zero`, `restore_value`) belong to its measurements, and none is made. Where its
    `prune_configs_by` rules the configuration out for the arguments of the first launch, that is
    an error; for other arguments afterwards, the first that it allows is launched.

    Args:
        tuner: a Triton `Autotuner`.
        config: one of its own.
    """

    def __init__(self, tuner: Any, config: Any) -> None:
        self._tuner, self._config = tuner, config
        self._chosen: dict[Any, Any] = {}
        """By what pruning may look at."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block. The tuner's own choices are as they were afterwards: another function
        may launch it, too.
        """
        before = vars(self._tuner).get("run")
        self._tuner.run = self._run
        try:
            yield
        finally:
            if before is None:
                del self._tuner.run
            else:
                self._tuner.run = before

    def _run(self, *args: Any, **named: Any) -> Any:
        tuner, chosen = self._tuner, self._choice(args, named)
        configs, cache = tuner.configs, tuner.cache
        tuner.configs, tuner.cache = [chosen], {}
        try:
            return type(tuner).run(tuner, *args, **named)
        finally:
            tuner.configs, tuner.cache = configs, cache

    def _choice(self, args: Any, named: Mapping[str, Any]) -> Any:
        tuner = self._tuner
        if not (tuner.early_config_prune or tuner.perf_model):
            return self._config
        by_place = dict(zip(tuner.arg_names, args, strict=False))
        key = tuple(_key_of({**by_place, **named}.get(name)) for name in tuner.arg_names)
        if key not in self._chosen:
            tuner.nargs = by_place
            allowed = tuner.prune_configs(dict(named))
            if self._config not in allowed and not self._chosen:
                raise ConfigPruned(f"prune_configs_by of the kernel leaves out {self._config}.")
            self._chosen[key] = self._config if self._config in allowed else allowed[0]
        return self._chosen[key]


def _key_of(value: Any) -> Any:
    """What pruning may look at: a tensor's kind and sizes, any other value itself."""
    if hasattr(value, "dtype"):
        return str(value.dtype), tuple(getattr(value, "shape", ()))
    return value if isinstance(value, int | float | str | bool | None) else str(value)


def _choices(parts: Sequence[Sequence[Config]], most: int) -> Iterator[tuple[Config, ...]]:
    """All of them; or where there are too many, those that differ from the first in one part."""
    if prod(map(len, parts)) <= most:
        yield from itertools.product(*parts)
        return
    first = tuple(one[0] for one in parts)
    yield first
    for i, part in enumerate(parts):
        for other in part[1:most]:
            yield (*first[:i], other, *first[i + 1 :])


def _joined(configs: Sequence[Config]) -> Config:
    return {name: value for one in configs for name, value in one.items()}


def _of_parameters(
    function: Callable[..., Any], given: Mapping[str, Any], kernels: Sequence[LaunchedKernel]
) -> tuple[Config, ...]:
    """Half and twice of the defaults of what a function says can be chosen."""
    known = {name for one in kernels for name in one.parameters} | set(_OPTIONS if kernels else ())
    axes: list[list[Config]] = []
    for name, one in _parameters(function).items():
        default = one.default
        is_number = isinstance(default, int) and not isinstance(default, bool) and default > 0
        if name in known and name not in given and is_number:
            axes.append([{name: value} for value in _near(name, default)])
    return tuple(_joined(choice) for choice in _choices(axes, MOST_OF_PARAMETERS)) or ({},)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _near(name: str, default: int) -> list[int]:
    if name == "num_stages":
        near = [default, default - 1, default + 1]
    elif default & (default - 1) == 0:
        near = [default, default // 2, 2 * default]
    else:
        return [default]
    least = min(default, 1 if name in _OPTIONS else _LEAST_BLOCK)
    return [v for v in near if least <= v <= max(default, _OPTIONS.get(name, v))]


def _described(kernel: Any) -> LaunchedKernel:
    tuner, inner = None, kernel
    while not hasattr(inner, "params") and hasattr(inner, "fn"):
        if type(inner).__name__ == "Autotuner":
            tuner = inner
        inner = inner.fn
    computed = _computed(kernel)
    own = [p.name for p in getattr(inner, "params", ()) if p.is_constexpr]
    if not hasattr(inner, "params"):  # an interpreted kernel, unwrapped to its function
        own = [n for n, p in _parameters(inner).items() if "constexpr" in str(p.annotation)]
    names = tuple(name for name in own if name not in computed)
    return LaunchedKernel(getattr(inner, "__name__", "kernel"), names, tuner)


def _computed(kernel: Any) -> set[str]:
    """Arguments that its heuristics compute."""
    found: set[str] = set()
    while hasattr(kernel, "fn"):
        if type(kernel).__name__ == "Heuristics":
            found |= set(kernel.values)
        kernel = kernel.fn
    return found


def _is_kernel(one: Any) -> bool:
    """Triton need not be imported to know what is none of its kernels."""
    jit = sys.modules.get("triton.runtime.jit")
    return jit is not None and isinstance(one, jit.KernelInterface)


def _named_in(function: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    """What a function's code names, in the order in which it does."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, FunctionType):
        call = vars(type(function)).get("__call__")
        function = call if isinstance(call, FunctionType) else None
    if function is None or id(function) in seen or depth == 0:
        return
    seen.add(id(function))
    for one in _values(function):
        yield one
        if isinstance(one, FunctionType) and not _is_installed(one):
            yield from _named_in(one, depth - 1, seen)


def _values(function: FunctionType) -> Iterator[Any]:
    names = list(_names(function.__code__))
    for name in names:
        one = function.__globals__.get(name)
        yield one
        if isinstance(one, ModuleType):
            yield from (vars(one)[n] for n in names if n in vars(one))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def _is_installed(function: FunctionType) -> bool:
    return "site-packages" in function.__code__.co_filename or function.__module__ in (
        "torch",
        "triton",
    )
