"""The live calibration as a task for a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

TASK = f"{__name__}:calibrate"


def calibrate(
    arguments: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Measure the ceilings of one GPU.

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
