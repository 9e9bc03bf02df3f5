"""The live calibration as tasks for processes of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

CEILINGS = f"{__name__}:ceilings"
NOISE = f"{__name__}:noise"

Tell = Callable[[Mapping[str, Any]], None]


def ceilings(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Measure the ceilings of one GPU; the noise between processes is not among them.

    Args:
        arguments: `quick` and `device`, the index as CUDA counts.
        tell: told before each part.

    Returns:
        `calibration`: a document of the calibration schema.
    """
    from kernel_compass.codec.calibration_json import encode
    from kernel_compass.measurement.calibration_run import run_calibration

    calibration = run_calibration(
        quick=arguments["quick"],
        on_progress=lambda progress: tell(asdict(progress)),
        index=arguments["device"],
    )
    return {"calibration": json.loads(encode(calibration))}


def noise(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:  # noqa: ARG001
    """Compare one kernel with itself.

    Args:
        arguments: `pairs`, `process` (which fresh process this is) and `device`.
        tell: not used; it takes a second.

    Returns:
        `pairs`: the fields of `PairedSamples`.
    """
    from kernel_compass.measurement.calibration_run import noise_samples

    samples = noise_samples(arguments["pairs"], arguments["process"], arguments["device"])
    return {"pairs": asdict(samples)}
