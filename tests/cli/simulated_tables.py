"""`open_table` and `profile_kernels` over the simulated GPU and its stand-in kernels."""

from __future__ import annotations

import sys
import time

from api.fake_kernels import FakeChoices, FakeKernel, FakeOperands

import kernel_compass.api.kernels as doors
from kernel_compass.api.calibrations import calibration
from kernel_compass.api.kernel_cells import Bench
from kernel_compass.api.kernel_plans import calibrated_floors
from kernel_compass.api.kernel_tables import TableRun
from kernel_compass.cli.main import main
from kernel_compass.measurement.simulated import SimulatedDevice
from kernel_compass.measurement.timing import TimingOptions

OPTIONS = TimingOptions(samples=3, settle_us=100.0, check=False)


class Machine:
    """Stands in for the doors of `api.kernels`."""

    def __init__(self, fault=None, stop_after=None, seconds_a_kernel=0.0):
        self.device, self.operands = SimulatedDevice(), FakeOperands()
        self.fault, self.stop_after, self.seconds = fault, stop_after, seconds_a_kernel
        self.measured = 0

    def open_table(self, request, gpu=None, device=0, known=(), on_progress=None):
        def tell(progress):
            if self.measured == self.stop_after:
                raise KeyboardInterrupt
            self.measured += 1
            time.sleep(self.seconds)
            on_progress(progress)

        own = calibration(gpu or "h200")
        floors = calibrated_floors(own)
        choices = FakeChoices(
            self._kernel("cublas_bf16", "bf16", 1.0),
            self._kernel("fake_w8", "w8a16_fp8", 0.5),
            self._kernel("fake_w4", "w4a16_gk", 0.5, self.fault),
        )
        bench = Bench(self.device, self.operands, choices, own, floors, OPTIONS)
        return doors.OpenTable(TableRun(request, bench, known, tell), own, ())

    def _kernel(self, name, number_format, extra_us, fault=None):
        return FakeKernel(name, (number_format,), self.device, self.operands, extra_us, fault)


if __name__ == "__main__":
    doors.open_table = Machine(seconds_a_kernel=0.05).open_table
    sys.exit(main(sys.argv[1:]))
