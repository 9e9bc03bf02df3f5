"""What every provider offers for a product, with what the model says of it; asked in a worker."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernel_compass import __version__
from kernel_compass.analysis.config_constants import H200
from kernel_compass.analysis.config_estimate import estimates_us
from kernel_compass.analysis.config_geometry import geometry
from kernel_compass.analysis.error_guides import ERROR_GUIDES
from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.latency import Ceilings, default_terms, predict
from kernel_compass.api.calibrations import calibration
from kernel_compass.api.problem_recipes import BASELINE
from kernel_compass.api.targets import target_named
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import CalibrationError
from kernel_compass.kernels.providers.registry import implementations_for
from kernel_compass.measurement.fresh import device_named
from kernel_compass.optimizer.space_heads import head, only
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.contracts import Config, Implementation, Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.search_space import CandidateSpace
from kernel_compass.records.workload import Traffic, Workload

__all__ = ["FORMATS", "MACHINE", "SPACES", "machine_task", "spaces_task", "target_named"]

SPACES = f"{__name__}:spaces_task"
MACHINE = f"{__name__}:machine_task"
FORMATS = (
    "bf16",
    "w8a16_fp8",
    "w8a16_int8",
    "w8a8_fp8",
    "w8a8_int8",
    "w8a8_fp8_block",
    "w4a16_gk",
    "w4a16_g128",
)
"""Tried where no formats are named."""
ESTIMATED = "own_decode"
"""Whose configurations the model tells apart; of others it knows the bytes alone."""
SCREEN_S, COMPILED_S, TUNED_S = 2.0, 6.0, 40.0
"""What trying a configuration takes, seconds: with no compiler, with Triton's, and where a library
compiles and tunes a whole graph."""
_TUNED = ("torch_compile", "torchao")
_REGIMES = (Regime.WARM, Regime.COLD)

Tell = Callable[[Mapping[str, Any]], None]


def machine_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: the environment of a device."""
    del tell
    found = device_named(arguments["device"]).environment()
    found = replace(found, python=platform.python_version(), kernel_compass=__version__)
    return {"environment": plain(found)}


def spaces_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: the spaces of one product.

    Args:
        arguments: `workload`, `formats`, `device`, `calibration`, `most`: how many of a space
            are kept, the best by estimate.
        tell: told nothing.
    """
    del tell
    workload = reshaped(arguments["workload"], ProblemWorkload)
    assert workload.product is not None
    target = target_named(arguments["device"])
    name = arguments["calibration"]
    machine = calibration(name) if name else None
    found = [
        space
        for text in arguments["formats"]
        for space in _of_format(workload.product, NumberFormat.parse(text), target, machine)
    ]
    return {"spaces": [plain(_best_by_estimate(space, arguments["most"])) for space in found]}


def _of_format(
    workload: Workload,
    number_format: NumberFormat,
    target: Target,
    machine: Calibration | None,
) -> list[CandidateSpace]:
    choice = implementations_for(workload, number_format, target)
    found = [_space(one, workload, number_format, target, machine) for one in choice.usable]
    return [one for one in map(_without_the_baseline, found) if one is not None]


def _without_the_baseline(space: CandidateSpace) -> CandidateSpace | None:
    """The space without the very thing that is to be beaten; `None` = nothing is left."""
    if (space.implementation, space.format) != (BASELINE.implementation, BASELINE.format):
        return space
    rest = range(1, len(space.configs))  # the baseline runs the default
    return only(space, rest) if rest else None


def _space(
    one: Implementation,
    workload: Workload,
    number_format: NumberFormat,
    target: Target,
    machine: Calibration | None,
) -> CandidateSpace:
    configs = tuple(dict(config) for config in one.space(workload, number_format, target))
    traffic = one.traffic(workload, number_format)
    floors, bounds = _floors(traffic, machine)
    return CandidateSpace(
        one.name,
        configs,
        number_format.name,
        one.provider,
        _estimates(one, configs, workload, number_format, target, traffic, machine),
        floors,
        bounds,
        traffic.weight_bytes,
        "the latency model" if machine else "its bytes",
        cost_s=_cost_s(one),
        error_guide_pct=_guide(number_format),
    )


def _floors(
    traffic: Traffic, machine: Calibration | None
) -> tuple[dict[Regime, float], dict[Regime, str]]:
    if machine is None:
        return {}, {}
    known = {regime: Floors(machine).of(traffic, regime) for regime in _REGIMES}
    found = {regime: one for regime, one in known.items() if one is not None}
    return {r: f.time_us for r, f in found.items()}, {r: f.bound for r, f in found.items()}


def _estimates(
    one: Implementation,
    configs: Sequence[Config],
    workload: Workload,
    number_format: NumberFormat,
    target: Target,
    traffic: Traffic,
    machine: Calibration | None,
) -> dict[Regime, tuple[float | None, ...]]:
    if one.name == ESTIMATED:
        count = target.multiprocessors or 132
        launches = [geometry(c, workload, number_format, count) for c in configs]
        return {
            regime: tuple(
                float(t) for t in estimates_us(launches, regime is Regime.COLD, count, H200)
            )
            for regime in _REGIMES
        }
    if machine is None:
        return {}
    try:
        ceilings = Ceilings.of(machine)
    except CalibrationError:
        return {}
    terms = default_terms(number_format.precision)
    return {
        regime: (predict(traffic, terms, regime, ceilings).time_us,) * len(configs)
        for regime in _REGIMES
    }


def _cost_s(one: Implementation) -> float:
    if one.name.startswith(_TUNED):
        return TUNED_S
    return SCREEN_S if one.provider == "torch" else COMPILED_S


def _guide(number_format: NumberFormat) -> float | None:
    """What the format costs on Gaussian data, where it is in the table."""
    guides = ERROR_GUIDES[number_format.precision]
    code = number_format.weight.value
    return next((g.relative_pct for g in guides if g.format.partition(" ")[0] == code), None)


def _best_by_estimate(space: CandidateSpace, most: int) -> CandidateSpace:
    """The default and the best of the others, where there are more than are worth knowing."""
    return space if len(space.configs) <= most else only(space, head(space, most))
