"""The CPU as a timing device: the real tensors, copies and launches of torch, no GPU."""

from __future__ import annotations

from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment


class CpuDevice(TorchDevice):
    """Calls run as they are issued, and each counts as two microseconds: no noise."""

    def __init__(self, index=0):
        import torch

        self._torch, self.index = torch, index
        self._now_us = 0.0

    @property
    def l2_bytes(self):
        return 64 << 10

    def environment(self):
        return Environment(
            Device("a CPU", None, 1, self.l2_bytes), torch=str(self._torch.__version__)
        )

    def free_bytes(self):
        return 1 << 30

    def run(self, call):
        call()

    def capture(self, calls):
        def replay():
            for call in calls:
                call()
                self._now_us += 2.0

        return replay

    def elapsed_us(self, work, before=None, primed=True):
        if before is not None:
            before()
        start = self._now_us
        work()
        return self._now_us - start + 5.0

    def unprimed(self):
        return 0

    def clocks(self):
        return None

    def memory_pin_tbs(self):
        return None

    def release(self):
        pass
