"""The CPU as a timing device: the real tensors, copies and launches of torch, no GPU."""

from __future__ import annotations

import time

from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment


class CpuDevice(TorchDevice):
    """Calls run as they are issued, and the clock on the wall is the GPU's."""

    def __init__(self, index=0):
        import torch

        self._torch, self.index = torch, index

    @property
    def l2_bytes(self):
        return 64 << 10

    def environment(self):
        return Environment(Device("a CPU", None, 1, self.l2_bytes), torch=str(self._torch.__version__))

    def free_bytes(self):
        return 1 << 30

    def run(self, call):
        call()

    def capture(self, calls):
        def replay():
            for call in calls:
                call()

        return replay

    def elapsed_us(self, work, before=None, primed=True):
        if before is not None:
            before()
        start = time.perf_counter()
        work()
        return (time.perf_counter() - start) * 1e6

    def unprimed(self):
        return 0

    def clocks(self):
        return None

    def memory_pin_tbs(self):
        return None

    def release(self):
        pass
