"""A recording that tests of the loop run on: times by a formula, so that the best is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.loop_recording import (
    LoopRecording,
    RecordedCandidate,
    RecordedWorkload,
)
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Op, Workload

COLD, WARM = Regime.COLD, Regime.WARM
ENVIRONMENT = Environment(
    Device("recorded GPU", "9.0", 132, 50 << 20), "580", "2.9.0", "3.6.0", "3.12", "0.1.0"
)
TARGET = "mla:deepseek-v3"


def factor(config):
    """How far a configuration is from its family's best; 1 at BLOCK 64, warps 4, stages 3."""
    block = {16: 1.5, 32: 1.2, 64: 1.0, 128: 1.3}[config["BLOCK_N"]]
    warps = {2: 1.1, 4: 1.0, 8: 1.15}[config["num_warps"]]
    return block * warps * {1: 1.3, 2: 1.1, 3: 1.0}[config["num_stages"]]


def family(name, number_format, cold_us, warm_us, estimate=1.0, floors=0.7, **found):
    """36 configurations, the default far from the best, with estimates that are half right."""
    configs = [
        {"BLOCK_N": b, "num_warps": w, "num_stages": s}
        for b, w, s in product((16, 32, 64, 128), (2, 4, 8), (1, 2, 3))
    ]
    return [
        RecordedCandidate(
            name,
            number_format,
            "own",
            config,
            {} if "reason" in found else {COLD: cold_us * f, WARM: warm_us * f},
            fidelity_error_pct=0.2,
            format_error_pct=2.0,
            added_bytes=1 << 20,
            estimates_us={COLD: estimate * cold_us * f**0.5, WARM: estimate * warm_us * f**0.5},
            floors_us={COLD: floors * cold_us, WARM: floors * warm_us},
            **found,
        )
        for config in configs
        for f in [factor(config)]
    ]


def workload(tokens=1, candidates=None, cold_us=10.0, warm_us=8.0, columns=512):
    """A product whose baseline takes so long."""
    sizes = Workload(Op.BMM, 128, tokens, 128, columns)
    found = candidates if candidates is not None else everything()
    return RecordedWorkload(
        ProblemWorkload(sizes.shape_text, {"tokens": tokens}, sizes),
        {COLD: cold_us, WARM: warm_us},
        {COLD: 0.6 * cold_us, WARM: 0.6 * warm_us},
        {COLD: "dram", WARM: "l2"},
        tuple(found),
    )


def everything():
    """The best is `fast` in w8a16_fp8 at 1.6 and 1.5 times; others fail in many ways."""
    return [
        *family("even", "bf16", 9.9, 8.1),
        *family("fast", "w8a16_fp8", 10 / 1.6, 8 / 1.5),
        *family("good", "w8a16_int8", 10 / 1.3, 8 / 1.3, estimate=0.9),
        *family("coarse", "w4a16_gk", 4.0, 4.0, reason=Reason.OVER_BUDGET, detail="11 % off"),
        *family("wrong", "w8a8_fp8", 5.0, 5.0, reason=Reason.WRONG_RESULT, detail="off"),
        *family("crash", "w8a8_int8", 5.0, 5.0, reason=Reason.CRASHED, detail="SIGSEGV"),
        *family("slow", "fp16", 14.0, 12.0, floors=0.95),
    ]


def recording(*workloads, **fields):
    """The whole of it."""
    found = workloads or (workload(1), workload(16, columns=256, cold_us=12.0, warm_us=9.0))
    return replace(LoopRecording(TARGET, ENVIRONMENT, tuple(found)), **fields)
