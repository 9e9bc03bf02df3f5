"""The program's own Triton kernels with other configurations, put in at the launch.

All launches go through `JITFunction.run` (`InterpretedFunction.run` under the interpreter), those
of an autotuned kernel through `Autotuner.run` before. A grid that is a function of the
meta-parameters gets the new ones. In code that `torch.compile` made, kernels are launched by
inductor: nothing is changed there.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from kernel_compass.api.actions.context import Application, Context, Undo
from kernel_compass.api.actions.patching import Layer
from kernel_compass.profiling.step_triton import function_of, source_sha256
from kernel_compass.profiling.triton_source import stuck
from kernel_compass.records.contracts import Config
from kernel_compass.records.step_action import StepAction
from kernel_compass.records.step_capture import LAUNCH_OPTIONS


def objection(action: StepAction, _: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    if action.target.kernel is None:
        return "its target names no kernel"
    if not action.config:
        return "it names no configuration"
    try:
        import_module("triton")
    except ImportError:
        return "Triton is not installed"
    return None


def put_on(action: StepAction, context: Context) -> Undo:
    """Change launches of the kernel from now on, in all threads."""
    application = context.of(action)
    one = _Launches(action, application, context)
    kinds = [(import_module("triton.runtime.jit").JITFunction, one.plain)]
    kinds.append((import_module("triton.runtime.autotuner").Autotuner, one.tuned))
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is not None:
        kinds.append((interpreter.InterpretedFunction, one.plain))
    layers = [Layer(kind, "run", replaced) for kind, replaced in kinds]
    application.on = True

    def undo() -> None:
        for layer in reversed(layers):
            layer.remove()
        one.forget()

    return undo


class _Launches:
    """What stands in for `run`."""

    def __init__(self, action: StepAction, application: Application, context: Context) -> None:
        self._target, self._config = action.target, dict(action.config)
        self._application, self._context = application, context
        self._is_it: dict[Any, bool] = {}
        self._best: list[tuple[Any, Any]] = []
        self.followed: dict[Any, frozenset[str]] = {}
        """What grids that are functions read, by their code."""

    def plain(self, below: Callable[..., Any], layer: Layer) -> Callable[..., Any]:
        """Of a kernel itself."""

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not layer.alive or not self._wanted(kernel, args, kwargs):
                return below(kernel, *args, grid=grid, warmup=warmup, **kwargs)
            args, kwargs = _with(function_of(kernel), self._config, args, kwargs, grid, self)
            return below(kernel, *args, grid=grid, warmup=warmup, **kwargs)

        return run

    def tuned(self, below: Callable[..., Any], layer: Layer) -> Callable[..., Any]:
        """Of a kernel with `@triton.autotune`: what it chooses among is left out of the question,
        its hooks are not."""

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if not layer.alive or not self._wanted(tuner, args, kwargs):
                return below(tuner, *args, **kwargs)
            config = self._pinned(tuner)
            if config is None:
                return below(tuner, *args, **kwargs)
            named = dict(zip(tuner.arg_names, args, strict=False))
            if config.pre_hook is not None:
                config.pre_hook({**named, **kwargs, **config.all_kwargs()})
            if not any(one is tuner for one, _ in self._best):
                self._best.append((tuner, getattr(tuner, "best_config", None)))
            tuner.best_config = config
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

        return run

    def forget(self) -> None:
        """Autotuners say again what they chose themselves."""
        for tuner, before in self._best:
            if before is None:
                vars(tuner).pop("best_config", None)
            else:
                tuner.best_config = before

    def refused(self, why: str) -> None:
        """It cannot hold for this kernel."""
        self._application.refuse(why)

    def used(self) -> None:
        """A launch was changed."""
        self._application.uses += 1

    def _wanted(self, kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        if not self._application.on or not self._kernel(kernel):
            return False
        if self._target.shapes and not self._shapes(args, kwargs):
            return False
        return self._application.fits(self._context.here)

    def _kernel(self, kernel: Any) -> bool:
        function = function_of(kernel)
        known = self._is_it.get(function)
        if known is None:
            name = getattr(function, "__name__", "")
            known = name == (self._target.kernel or "").rpartition(".")[2]
            wanted = self._target.kernel_sha256
            if known and wanted is not None and source_sha256(kernel) != wanted:
                known = False
                self.refused(f"the source of {name} is not the one that was measured")
            self._is_it[function] = known
        return known

    def _shapes(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        tensors = [one for one in (*args, *kwargs.values()) if hasattr(one, "data_ptr")]
        return tuple(tuple(one.shape) for one in tensors) == self._target.shapes

    def _pinned(self, tuner: Any) -> Any | None:
        """The configuration with the hook of the choice that it is, or of all of them."""
        kind = import_module("triton.runtime.autotuner").Config
        names = {name for one in tuner.configs for name in one.kwargs}
        meta = {name: value for name, value in self._config.items() if name in names}
        options = {name: self._config[name] for name in self._config.keys() & LAUNCH_OPTIONS}
        if names - meta.keys():
            self.refused(f"it leaves {', '.join(sorted(names - meta.keys()))} open")
            return None
        wanted = kind(meta, **options)
        for one in tuner.configs:
            if {**one.all_kwargs()} == {**one.all_kwargs(), **wanted.kwargs, **options}:
                return one
        hooks = {id(one.pre_hook): one.pre_hook for one in tuner.configs}
        if len(hooks) > 1:
            self.refused("the choices of its autotuner have hooks of their own, and it is none")
            return None
        wanted.pre_hook = next(iter(hooks.values()))
        return wanted


def _with(
    function: Any,
    config: Config,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    grid: Any,
    launches: _Launches,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The launch's arguments with the configuration in them, or as they were."""
    names = list(function.__code__.co_varnames[: function.__code__.co_argcount])
    unknown = config.keys() - set(LAUNCH_OPTIONS) - set(names)
    if unknown:
        launches.refused(f"{function.__name__} has no parameter {', '.join(sorted(unknown))}")
        return args, dict(kwargs)
    now = {**dict(zip(names, args, strict=False)), **kwargs}
    changed = {name for name, value in config.items() if _value(now.get(name)) != value}
    given = {**_defaults(function), **now, **config}
    held = changed & stuck(function, grid, given, launches.followed)
    if held:
        what = (
            "is a function that does not read it" if callable(grid) else f"{tuple(grid)} is fixed"
        )
        launches.refused(f"its grid {what}, and depends on {', '.join(sorted(held))}")
        return args, dict(kwargs)
    placed = list(args)
    new = dict(kwargs)
    for name, value in config.items():
        if name in names and names.index(name) < len(placed):
            placed[names.index(name)] = value
        else:
            new[name] = value
    launches.used()
    return tuple(placed), new


@cache
def _defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _value(one: Any) -> Any:
    """A meta-parameter's value; `tl.constexpr` holds it."""
    return getattr(one, "value", one)
