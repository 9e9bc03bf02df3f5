"""A finalist under compute-sanitizer, as the loop asks a worker for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from kernel_compass.api.sanitizing import sanitize
from kernel_compass.codec.canonical import reshaped
from kernel_compass.errors import KernelCompassError
from kernel_compass.records.problem import ProblemSource, ProblemWorkload
from kernel_compass.records.trial import Candidate

Tell = Callable[[Mapping[str, Any]], None]


def sanitize_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: call a candidate once under each tool, on the worker's GPU.

    Args:
        arguments: those of all tasks, `workload`, `candidate`, `timeout_s` (of each tool).
        tell: told when it begins.

    Returns:
        `reports`, one a tool; or `unavailable`, why there are none.
    """
    tell({"phase": "run"})
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES") or "0"
    try:
        reports = sanitize(
            reshaped(arguments["source"], ProblemSource),
            reshaped(arguments["workload"], ProblemWorkload),
            reshaped(arguments["candidate"], Candidate),
            gpu,
            timeout_s=arguments["timeout_s"],
        )
    except KernelCompassError as error:
        return {"unavailable": error.found}
    return {"reports": [{**asdict(one), "is_clean": one.is_clean} for one in reports]}
