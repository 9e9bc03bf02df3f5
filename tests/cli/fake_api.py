"""A stand-in for `kernel_compass.api` that knows files by their name.

Run as a program it is the command line over that stand-in.
"""

from __future__ import annotations

import os
import sys
import types
from dataclasses import dataclass, replace

from report import samples

from kernel_compass.errors import DamagedCapture, ProfilingCause, ProfilingError
from kernel_compass.records.request import Check, CheckStatus

CHECKS = (
    Check("GPU", CheckStatus.OK, "NVIDIA H200"),
    Check("ncu", CheckStatus.MISSING, "not on PATH", "no live profiling", "install Nsight Compute"),
    Check("clocks", CheckStatus.WARNING, "not locked", "noisier times", "nvidia-smi -lgc"),
)


@dataclass(frozen=True)
class Progress:
    """As the profiler's own."""

    regime: str = "warm"
    kernels_done: int = 3
    kernel_name: str | None = "k_tiny"
    seconds: float = 2.0


class FakeApi(types.ModuleType):
    """What the commands call; remembers how."""

    def __init__(self):
        super().__init__("kernel_compass.api")
        self.calls = []
        self.failure = None

    def diagnose_files(self, files, joined, label, calibration=None, on_error=None, timeline=None):
        self.calls.append((list(files), dict(joined), label))
        self.calibration = calibration
        if self.failure is not None:
            raise self.failure
        if any("damaged" in path.name for path in files):
            raise DamagedCapture(f"{files[0].name} ends inside a row.", "Record it again.")
        reports = [samples.decode() for _ in files] + [samples.bmm_regimes()] * bool(joined)
        return [replace(report, label=label or report.label) for report in reports]

    def profile_target(self, request, on_progress=None, target_stdout=None, calibration=None):
        self.calls.append((request, target_stdout))
        self.calibration = calibration
        if target_stdout is not None:
            os.write(target_stdout, b"the program says hello\n")
        if on_progress is not None:
            on_progress(Progress())
        if self.failure is not None:
            raise self.failure
        return replace(samples.bmm_regimes(), label=request.label)

    def doctor(self):
        return CHECKS


def profiling_error(cause):
    return ProfilingError(ProfilingCause(cause), f"it was {cause}.", "Do something about it.")


if __name__ == "__main__":
    import kernel_compass

    fake = FakeApi()
    sys.modules["kernel_compass.api"] = fake
    kernel_compass.api = fake
    from kernel_compass.cli.main import run

    run()
