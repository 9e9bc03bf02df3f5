"""Tasks for fresh processes: pairs for a hold-out, and replays for ncu to watch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from kernel_compass.errors import KernelCompassError
from kernel_compass.measurement.device import NotCapturable, TimingDevice
from kernel_compass.measurement.paired import pair
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.subject import rotation
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime

PAIRS = f"{__name__}:pairs"
COLD_REPLAYS = 2
"""The second is the one that counts: the first finds what making the operands left."""

Tell = Callable[[Mapping[str, Any]], None]


def device_named(name: str) -> TimingDevice:
    """`cuda:0` and the like, or `simulated` for a dry run.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: no such GPU.
    """
    if name == "simulated":
        from kernel_compass.measurement.simulated import SimulatedDevice

        return SimulatedDevice(noise=0.002)
    from kernel_compass.measurement.torch_device import TorchDevice

    return TorchDevice(int(name.partition(":")[2] or 0))


def pairs(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Time two recipes in turns, in every regime, with operands placed anew.

    Args:
        arguments: `baseline`, `candidate` (recipes), `regimes`, `pairs`, `process`, `device`,
            `launch_mode`, and `launches`: n of each regime, or None to choose it.
        tell: told before each regime.

    Returns:
        `samples`: the fields of `PairedSamples`, one a regime.
    """
    device = device_named(arguments["device"])
    device.seed(arguments["process"])
    scattered = device.scatter(arguments["process"])
    sides = [Recipe.of(arguments[side]).build(device) for side in ("baseline", "candidate")]
    del scattered
    samples = []
    for name in arguments["regimes"]:
        tell({"regime": name})
        options = replace(TimingOptions(), launches=(arguments["launches"] or {}).get(name))
        mode = LaunchMode(arguments["launch_mode"])
        timer = pair(sides[0], sides[1], device, Regime(name), mode, options=options)
        samples.append(asdict(timer.take(arguments["pairs"], arguments["process"])))
    return {"samples": samples}


def paired_samples(fields: Mapping[str, Any]) -> PairedSamples:
    """Samples from their fields as JSON carries them."""
    return PairedSamples(
        tuple(fields["baseline_us"]),
        tuple(fields["candidate_us"]),
        Regime(fields["regime"]),
        LaunchMode(fields["launch_mode"]),
        fields["launches_per_replay"],
        fields["process"],
    )


def main() -> int:
    """Replay a recipe's rotated launches as CUDA graphs, for ncu to watch.

    Reads the recipe as JSON from the command line; prints the launches of a graph and the bytes
    of one set, or why the recipe cannot be watched.
    """
    request = json.loads(sys.argv[1])
    try:
        told: dict[str, Any] = _replayed(request)
    except KernelCompassError as error:
        told = {"error": str(error)}
    except NotCapturable as error:
        told = {"error": f"The callable cannot be captured in a CUDA graph: {error}."}
    sys.stdout.write(json.dumps(told) + "\n")
    return 1 if "error" in told else 0


def _replayed(request: Mapping[str, Any]) -> dict[str, Any]:
    device = device_named(request["device"])
    subject = Recipe.of(request["recipe"]).build(device)
    device.run(subject.first_call)  # what a library sets up at its first call cannot be captured
    sets = rotation(subject, device)
    replay = device.capture([subject.call(one) for one in sets])
    for _ in range(COLD_REPLAYS):
        device.run(replay)
    streamed = sum(device.bytes_of(operand) for operand in sets[0])
    return {"launches": len(sets), "streamed_bytes": streamed}


if __name__ == "__main__":
    sys.exit(main())
