"""Implementations and a machine for tests of dispatch without a GPU."""

from __future__ import annotations

import torch
from optimizer.study_samples import H200

from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers.base import compulsory
from kernel_compass.kernels.references import dequantize
from kernel_compass.records.contracts import Prepared, Target
from kernel_compass.records.workload import Op

H200_TARGET = Target("cuda", (9, 0), H200.name, H200.sm_count)


class Doubled:
    """Computes from the quantized weight, packed as a copy; counts its launches."""

    def __init__(self, name="stand_in", refuses=None, fails=None):
        self.name = name
        self.provider = "tests"
        self.refuses, self.fails = refuses, fails
        self.launches = []

    def supports(self, workload, number_format, target):
        return self.refuses

    def space(self, workload, number_format, target):
        return ({"BLOCK": 64},)

    def prepare(self, weight, workload, config=None):
        if self.fails:
            raise self.fails
        if config and "BLOCK" not in config:
            raise UsageError(f"{config} is no configuration.", "Use BLOCK.")
        packed = dequantize(weight).to(torch.bfloat16).contiguous().clone()
        kept = packed.numel() * packed.element_size()
        return Prepared(workload, weight.format, config or {}, (packed,), kept + 128, packed)

    def run(self, prepared, streamed, a, out=None):
        (weight,) = streamed
        assert weight.data_ptr() == prepared.extra.data_ptr(), "what it keeps is what is streamed"
        self.launches.append((tuple(a.shape), dict(prepared.config)))
        if prepared.workload.op is Op.LINEAR:
            return a @ weight[0]
        return torch.bmm(a, weight)

    def traffic(self, workload, number_format):
        return compulsory(workload, number_format, 2)
