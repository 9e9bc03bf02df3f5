"""A problem's own baseline as a candidate, treated as a whole: under `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers.compiled import SEARCHING, compiled, layout
from kernel_compass.records.baseline_survey import COMPILED
from kernel_compass.records.contracts import Config

MODES = ("default", SEARCHING)


def check_compiled(config: Config) -> None:
    """That a configuration is of a mode of Inductor.

    Raises:
        UsageError: it is of something else.
    """
    if set(config) - {"mode"} or config.get("mode", MODES[0]) not in MODES:
        found = f"{COMPILED} does not take {dict(config)!r}."
        raise UsageError(found, f'It takes {{"mode": M}}, M one of {", ".join(MODES)}.')


class CompiledBaseline:
    """The baseline, compiled for each layout of its operands.

    What torch does not compile of it runs as it is: only its time decides.

    Args:
        torch: the module.
        baseline: of the problem's file, a plain function.
        config: `mode`, of Inductor.
    """

    def __init__(self, torch: Any, baseline: Callable[..., Any], config: Config) -> None:
        self._torch, self._baseline = torch, baseline
        self._mode = str(config.get("mode", MODES[0]))
        self._known: dict[Any, Callable[..., Any]] = {}

    def prepare(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Operands that stay are passed on as they are."""
        return dict(held)

    def run(self, state: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Call it with all operands by name."""
        named = {**state, **given}
        tensors = [one for one in named.values() if isinstance(one, self._torch.Tensor)]
        key = (tuple(named), layout(*tensors))
        if key not in self._known:
            self._known[key] = compiled(self._baseline, self._mode, whole=False)
        with self._torch.no_grad():
            return self._known[key](**named)
