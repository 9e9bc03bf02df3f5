"""Tasks for fresh processes: pairs for a hold-out, and replays for ncu to watch."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from kernel_compass.errors import KernelCompassError, UsageError
from kernel_compass.measurement.device import NotCapturable, TimingDevice
from kernel_compass.measurement.paired import pair
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.subject import rotation
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.device import SIMULATED, Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

PAIRS = f"{__name__}:pairs"
REPLAYS = 2
"""The second is the one that counts: the first finds what making the operands left."""
WARM_LAUNCHES = 64
"""Of a graph: what its first launch finds evicted is this part of what is counted."""

Tell = Callable[[Mapping[str, Any]], None]


def device_named(name: str) -> TimingDevice:
    """`cuda:0` and the like, or `simulated` for a dry run.

    Raises:
        UsageError: no such name.
        MissingDependency: torch is not installed.
        MeasurementError: no such GPU.
    """
    if name == SIMULATED:
        from kernel_compass.measurement.simulated import SimulatedDevice

        return SimulatedDevice(noise=0.002)
    kind, _, index = name.partition(":")
    if kind != "cuda" or not (index or "0").isdecimal():
        raise UsageError(f"{name!r} is no device.", "Name cuda:0, cuda:1, ... or simulated.")
    from kernel_compass.measurement.torch_device import TorchDevice

    return TorchDevice(int(index or 0))


def pairs(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Time two recipes in turns, in every regime, with operands placed anew.

    Args:
        arguments: `baseline`, `candidate` (recipes), `regimes`, `pairs`, `process`, `seed` (of
            the study), `device`, `launch_mode`, and `launches`: n of each regime, or None.
        tell: told before each regime.

    Returns:
        `samples`: the fields of `PairedSamples`, one a regime.

    Raises:
        MeasurementError: a launch as it was timed is wrong (`timed_wrong`), or cannot be timed.
    """
    device = device_named(arguments["device"])
    seed = arguments["seed"] + arguments["process"]
    device.seed(seed)
    scattered = device.scatter(seed)
    # Which side is built and timed first alternates, so that neither has a place of its own.
    swapped = arguments["process"] % 2 == 1
    order = ("candidate", "baseline") if swapped else ("baseline", "candidate")
    sides = [Recipe.of(arguments[side]).build(device) for side in order]
    del scattered
    samples = []
    for name in arguments["regimes"]:
        tell({"regime": name})
        options = replace(TimingOptions(), launches=(arguments["launches"] or {}).get(name))
        mode = LaunchMode(arguments["launch_mode"])
        timer = pair(sides[0], sides[1], device, Regime(name), mode, options=options)
        found = timer.take(arguments["pairs"], arguments["process"])
        timer.refuse_if_wrong()
        samples.append(asdict(_unswapped(found) if swapped else found))
    return {"samples": samples}


def _unswapped(found: PairedSamples) -> PairedSamples:
    return replace(found, baseline_us=found.candidate_us, candidate_us=found.baseline_us)


def paired_samples(fields: Mapping[str, Any]) -> PairedSamples:
    """Samples from their fields as JSON carries them."""
    environment = fields["environment"]
    return PairedSamples(
        baseline_us=tuple(fields["baseline_us"]),
        candidate_us=tuple(fields["candidate_us"]),
        regime=Regime(fields["regime"]),
        launch_mode=LaunchMode(fields["launch_mode"]),
        launches_per_replay=fields["launches_per_replay"],
        process=fields["process"],
        warnings=tuple(fields["warnings"]),
        environment=environment and _environment(environment),
    )


def _environment(fields: Mapping[str, Any]) -> Environment:
    return Environment(**{**fields, "device": Device(**fields["device"])})


def main() -> int:
    """Replay launches of recipes as CUDA graphs, for ncu to watch: rotated ones, or warm ones.

    Reads the recipes and their regimes as JSON from the command line; prints of each the launches
    of a graph, the bytes of one set and how often the graph is replayed, or why it cannot be
    watched.
    """
    request = json.loads(sys.argv[1])
    asked = zip(request["recipes"], request["regimes"], strict=True)
    watched = [_watched(one, regime, request["device"]) for one, regime in asked]
    sys.stdout.write(json.dumps({"watched": watched}) + "\n")
    return 0 if all("error" not in one for one in watched) else 1


def _watched(recipe: Mapping[str, Any], regime: str, name: str) -> dict[str, Any]:
    try:
        return _replayed(recipe, Regime(regime), name)
    except KernelCompassError as error:
        return {"error": str(error)}
    except NotCapturable as error:
        return {"error": f"The callable cannot be captured in a CUDA graph: {error}."}
    finally:
        gc.collect()


def _replayed(recipe: Mapping[str, Any], regime: Regime, name: str) -> dict[str, Any]:
    device = device_named(name)
    subject = Recipe.of(recipe).build(device)
    device.run(subject.first_call)  # what a library sets up at its first call cannot be captured
    warm = regime is Regime.WARM
    sets = (subject.streamed,) * WARM_LAUNCHES if warm else rotation(subject, device)
    replay = device.capture([subject.call(one) for one in sets])
    for _ in range(REPLAYS):
        device.run(replay)
    streamed = sum(device.bytes_of(operand) for operand in sets[0])
    found = {"launches": len(sets), "streamed_bytes": streamed, "replays": REPLAYS}
    del subject, sets, replay
    device.release()
    return found


if __name__ == "__main__":
    sys.exit(main())
