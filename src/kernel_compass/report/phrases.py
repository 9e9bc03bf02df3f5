"""Records in a few words: what every output for people says the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Diagnosis, Evidence, Flag, Limiter, Reuse
from kernel_compass.records.profile import Regime, Source, SourceFormat
from kernel_compass.units import MISSING, bytes_text, quantity_text

if TYPE_CHECKING:
    from kernel_compass.records.report import Report

LIMITER_OUTLOOK: Mapping[Limiter, str] = {
    Limiter.DRAM_BOUND: "move fewer bytes (fusion, fewer bits) or keep them in L2",
    Limiter.L2_BOUND: "reuse more in shared memory and registers (larger tiles)",
    Limiter.L1_BOUND: "better access patterns, or more reuse in registers",
    Limiter.COMPUTE_BOUND: "less or cheaper arithmetic (tensor cores, fewer bits)",
    Limiter.LATENCY_BOUND: "more work in flight (more warps, more independent loads)",
    Limiter.LAUNCH_BOUND: "candidates for fusion or CUDA graphs; a timeline confirms it",
    Limiter.UNCLASSIFIED: "no level stands out",
}
"""What a group of kernels of one limiter is a candidate for."""

TIMELINE_OUTLOOK: Mapping[Limiter, str] = {
    **LIMITER_OUTLOOK,
    Limiter.LAUNCH_BOUND: "fuse them or capture them in a CUDA graph",
    Limiter.UNCLASSIFIED: "not launch-bound; what bounds them takes counters to say",
}
"""The same where a timeline was read and not counters."""

_ACRONYMS = frozenset(("sm", "l1", "l2", "dram", "fma", "xu", "lsu", "alu", "tma", "fp16", "fp64"))
_FORMATTED_UNITS = ("%", "bytes", "us", "bytes/s")
"""Units that belong to a number; the others are words, and once is enough."""
_TIMELINES = (SourceFormat.KINETO_TRACE, SourceFormat.KINETO_RUN)
_REUSE = {
    Reuse.WITHIN: "within the launch",
    Reuse.BETWEEN: "between launches",
    Reuse.UNKNOWN: "reuse unknown",
}


def plain(text: str) -> str:
    """Text that cannot steer a terminal: no control characters, one line."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", text).strip()


def metric_text(key: str) -> str:
    """A metric's key in words: `dram_throughput_pct` is `DRAM throughput`."""
    words = key.removesuffix("_pct").removesuffix("_us").replace("_", " ").split()
    return " ".join(word.upper() if word in _ACRONYMS else word for word in words)


def evidence_text(evidence: Evidence, explained: bool = True) -> str:
    """One number, the threshold it is on this side of, and (unless told before) what it says."""
    number = f"{metric_text(evidence.metric)} {quantity_text(evidence.value, evidence.unit)}"
    if evidence.threshold is not None and evidence.unit:
        side = ">=" if evidence.value >= evidence.threshold else "<"
        unit = evidence.unit if evidence.unit in _FORMATTED_UNITS else ""
        number += f" ({side} {quantity_text(evidence.threshold, unit)})"
    return f"{number}: {evidence.meaning}" if explained and evidence.meaning else number


def leading_evidence(diagnosis: Diagnosis, count: int) -> tuple[Evidence, ...]:
    """The first numbers; the bytes that tell where the operands were are always among them."""
    shown = diagnosis.evidence[:count]
    traffic = [e for e in diagnosis.evidence[count:] if e.metric == "dram_bytes_read"]
    told = any(e.metric == "dram_bytes_read" for e in shown)
    return shown if told or not traffic else (*shown[: count - 1], traffic[0])


def limiter_text(diagnosis: Diagnosis) -> str:
    """The limiter, with its pipe where it has one: `compute_bound (tensor)`."""
    pipe = f" ({diagnosis.pipe})" if diagnosis.pipe else ""
    return f"{diagnosis.limiter.value}{pipe}"


def flag_texts(diagnosis: Diagnosis) -> list[str]:
    """The flags; residency says whose reuse it is."""
    reuse = f" ({_REUSE[diagnosis.reuse]})" if diagnosis.reuse else ""
    return [f.value + (reuse if f is Flag.L2_RESIDENT else "") for f in diagnosis.flags]


def headroom_text(diagnosis: Diagnosis) -> str:
    """Time over the floor: `1.80x its floor (traffic)`; empty without a calibration."""
    headroom = diagnosis.headroom
    return f"{headroom.value:.2f}x its floor ({headroom.basis})" if headroom else ""


def headroom_cell(diagnosis: Diagnosis | None) -> str:
    """The same for a column: `1.80x`."""
    headroom = diagnosis.headroom if diagnosis else None
    return f"{headroom.value:.2f}x" if headroom else MISSING


def calibration_text(report: Report) -> str:
    """Which calibration the headrooms rest on; empty without one."""
    return f"calibration {plain(report.calibration)}" if report.calibration else ""


def reads_text(metrics: Mapping[str, float], short: bool = False) -> str:
    """Bytes a launch reads: `DRAM reads 1.34 MiB of L2's 16.1 MiB`, short `DRAM 1.34 MiB`."""
    dram, l2 = metrics.get("dram_bytes_read"), metrics.get("l2_bytes_read")
    if dram is None:
        return "" if l2 is None or short else f"L2 reads {bytes_text(l2)}"
    if short:
        return f"DRAM {bytes_text(dram)}"
    of_l2 = f" of L2's {bytes_text(l2)}" if l2 else ""
    return f"DRAM reads {bytes_text(dram)}{of_l2}"


def share_text(share: float | None) -> str:
    """A share of time as a percentage."""
    if share is not None and 0 < share < 0.0005:
        return "<0.1 %"
    return quantity_text(None if share is None else share * 100, "%")


def count_text(count: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`, `3 launches`."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def device_text(device: Device | None) -> str:
    """`NVIDIA H200, compute capability 9.0, 132 SMs, 50.0 MiB of L2`, as far as it is known."""
    if device is None:
        return "GPU not stated"
    parts = [plain(device.name) if device.name else "GPU not named"]
    if device.compute_capability:
        parts.append(f"compute capability {device.compute_capability}")
    if device.sm_count:
        parts.append(f"{device.sm_count} SMs")
    if device.l2_bytes:
        parts.append(f"{bytes_text(device.l2_bytes)} of L2")
    return ", ".join(parts)


def source_text(source: Source) -> str:
    """How a capture was taken, and what it does not state."""
    if source.format in _TIMELINES:
        return f"{source.format.value}, times and launches, no counters"
    how = (
        ("cache control", source.cache_control),
        ("clock control", source.clock_control),
        ("replay", source.replay_mode),
        ("ncu", source.ncu_version),
    )
    stated = [f"{name} {plain(value)}" for name, value in how if value]
    silent = [name for name, value in how if not value]
    if silent:
        stated.append(f"not stated: {', '.join(silent)}")
    return ", ".join((source.format.value, *stated))


def source_name(source: Source) -> str:
    """The capture's path, or what it is instead of a file."""
    if source.path:
        return plain(source.path)
    live = source.format in (SourceFormat.NCU_RUN, SourceFormat.KINETO_RUN)
    return "profiled now" if live else "(no file)"


def regime_text(regime: Regime) -> str:
    """A regime's name for people."""
    return "regime unknown" if regime is Regime.UNKNOWN else regime.value
