"""`kernel-compass doctor`: what this machine can do."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kernel_compass.cli.output import color_of, emit, width_of

DoctorJsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]


def doctor(json: DoctorJsonOption = False) -> None:
    """Check the GPU, driver, ncu and its permission, torch, triton, clocks: what a lack costs.

    Works where nothing is installed; a missing part is a finding, not an error.
    """
    from kernel_compass import api
    from kernel_compass.report.checks import checks_json, checks_text

    checks = api.doctor()
    if json:
        emit(checks_json(checks), None)
    else:
        emit(checks_text(checks, width_of(sys.stdout), color_of(sys.stdout)), None, utf8=False)
