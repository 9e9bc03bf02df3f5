"""The user's own Triton kernels with other configurations.

The space is what its author could have written: sizes that are powers of two, a quarter to four
times as large, other numbers of warps and stages; of a kernel with `@triton.autotune`, its choices.
The loop times some of them in the step (`config_descent`); the best goes through validation like
any change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product

from kernel_compass.optimizer.step_doors import Offer, StepView
from kernel_compass.optimizer.step_proposers.predicting import evidence_of, saved_us
from kernel_compass.records.contracts import Config
from kernel_compass.records.step_action import (
    StepAction,
    StepActionKind,
    StepProposal,
    StepTarget,
)
from kernel_compass.records.step_capture import LAUNCH_OPTIONS, StepLaunch
from kernel_compass.records.step_loop import PlaceKind

COST_OF_A_CONFIG_S = 2.0
WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
FACTORS = (1, 2, 0.5, 4, 0.25)
LEAST_SIZE, MOST_SIZE = 16, 1 << 16


class TritonConfigs:
    """One proposal a kernel.

    Args:
        most: configurations that are timed.
    """

    name = "triton_config"

    def __init__(self, most: int) -> None:
        self._most = most

    def propose(self, view: StepView) -> Sequence[Offer]:
        """Kernels that were not re-tuned yet."""
        done = {o.target.kernel_sha256 for o in view.accepted}
        found = []
        for place in view.of(PlaceKind.TRITON):
            launch = next(o for o in view.capture.launches if o.index == place.launch)
            if launch.source_sha256 in done:
                continue
            configs = neighbours(launch)
            if not configs:
                continue
            target = StepTarget(
                f"kernel {launch.kernel}",
                kernel=launch.kernel,
                kernel_sha256=launch.source_sha256,
            )
            actions = tuple(
                StepAction(StepActionKind.TRITON_CONFIG, target, config=one) for one in configs
            )
            headroom = place.selected.headroom
            now = " ".join(f"{k}={v}" for k, v in sorted(launch.config.items()))
            proposal = StepProposal(
                StepAction(StepActionKind.TRITON_CONFIG, target),
                f"Its configuration ({now}) was not chosen for this GPU and these sizes.",
                (*evidence_of(place), f"{len(configs)} other configurations"),
                place.selected.share,
                headroom,
                saved_us(place, headroom),
                preconditions=(*_grid_of(launch), "its results stay the same"),
            )
            cost = COST_OF_A_CONFIG_S * min(len(configs), self._most)
            found.append(Offer(proposal, cost, configs=actions))
        return found


def _grid_of(launch: StepLaunch) -> tuple[str, ...]:
    stays = ", ".join(launch.tied)
    return (
        (f"{stays} stays, which its grid does not follow",) if stays and not launch.choices else ()
    )


def neighbours(launch: StepLaunch) -> tuple[Config, ...]:
    """Other configurations, those that differ in one dimension first."""
    now = dict(launch.config)
    if launch.choices:
        return tuple({**now, **one} for one in launch.choices if {**now, **one} != now)
    found: dict[tuple[tuple[str, object], ...], Config] = {}
    for one in sorted(_points(now, launch.tied), key=lambda point: _distance(now, point)):
        if one != now:
            found.setdefault(tuple(sorted(one.items())), one)
    return tuple(found.values())


def _points(
    now: Mapping[str, int | bool | str], tied: Collection[str]
) -> Iterator[dict[str, int | bool | str]]:
    axes: dict[str, tuple[int | bool | str, ...]] = {}
    for name, value in now.items():
        if name in LAUNCH_OPTIONS or name in tied:
            continue
        if isinstance(value, int) and _is_size(value):
            sizes = (int(value * factor) for factor in FACTORS)
            axes[name] = tuple(size for size in sizes if LEAST_SIZE <= size <= MOST_SIZE)
    axes["num_warps"] = WARPS
    if "num_stages" in now:
        axes["num_stages"] = STAGES
    for values in product(*axes.values()):
        yield {**now, **dict(zip(axes, values, strict=True))}


def _is_size(value: int) -> bool:
    """A power of two of a tile's size."""
    if isinstance(value, bool):
        return False
    return LEAST_SIZE <= value <= MOST_SIZE and value & (value - 1) == 0


def _distance(now: Mapping[str, object], point: Mapping[str, object]) -> tuple[int, float]:
    """Dimensions in which it differs, then how far: the near ones are tried first."""
    differs = [name for name in point if point[name] != now.get(name)]
    far = 0.0
    for name in differs:
        one, other = point[name], now.get(name, 4)
        if isinstance(one, int) and isinstance(other, int) and one > 0 and other > 0:
            far += max(one / other, other / one)
    return len(differs), far
