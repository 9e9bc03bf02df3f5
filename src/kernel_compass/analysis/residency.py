"""Did L2 serve the bytes, and whose earlier access put them there?

Answered from bytes: DRAM reads next to what the SMs read from L2. Hit rates are not needed, and
mislead for kernels that load by TMA. A details page carries no such bytes; there the DRAM level
next to the L2 level stands in, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.analysis.quantities import MIN_TRAFFIC_BYTES
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Evidence, Flag, Reuse
from kernel_compass.records.profile import Regime, Source
from kernel_compass.units import bytes_text

RESIDENT_RATIO = 0.12
"""DRAM reads up to about a tenth of the L2 reads: resident. ncu itself evicts up to 9 % of a
16.8 MB operand between two passes (measured, H200)."""
RESIDENT_LEVEL_RATIO = 0.2
"""The same between levels (percent of peak): L2's peak is about twice DRAM's."""
SERVED_BY_DRAM_RATIO = 0.5
"""DRAM reads of at least half of the L2 reads: DRAM served them."""
SMALLEST_L2_BYTES: Mapping[str, int] = {
    "7.0": 6 << 20,
    "7.5": 4 << 20,
    "8.0": 40 << 20,
    "8.6": 3 << 20,
    "8.9": 32 << 20,
    "9.0": 50 << 20,
    "10.0": 126 << 20,
}
"""Smallest L2 sold per compute capability (vendor data sheets). Used only where the capture does
not state the L2 size, and said in the evidence."""
SETTLES_BELOW = 0.7
"""Share of the nominal L2 under which a re-read operand stays in it (measured: 0.77 on an H200,
0.71 to 0.80 on other data-centre GPUs)."""
MIN_L2_LEVEL_PCT = 5.0
"""L2 level under which a page without byte counts says nothing about residency."""
L2_FLOOR_BANDWIDTH = 1e6
"""Bytes per us that an L2 at full throughput moves at the very least, on any GPU since Volta."""


@dataclass(frozen=True)
class Residency:
    """The verdict on one kernel."""

    flag: Flag | None = None
    reuse: Reuse | None = None
    evidence: tuple[Evidence, ...] = ()


def residency(
    q: Mapping[str, float],
    source: Source,
    device: Device | None,
    flushed: Mapping[str, float] | None = None,
) -> Residency:
    """Judge one kernel.

    Args:
        q: its quantities (`analysis.quantities`).
        source: how the capture was taken: after a flush nothing is known between launches.
        device: for the L2 size.
        flushed: quantities of the same kernel from a capture with flushed caches, where joined.
    """
    if "dram_reads_per_l2_read" in q:
        return _from_bytes(q, source, device, flushed)
    return _from_levels(q, source, device)


def _from_bytes(
    q: Mapping[str, float],
    source: Source,
    device: Device | None,
    flushed: Mapping[str, float] | None,
) -> Residency:
    reads, l2_reads = q["dram_bytes_read"], q["l2_bytes_read"]
    if l2_reads < MIN_TRAFFIC_BYTES:
        return Residency()
    ratio = q["dram_reads_per_l2_read"]
    if ratio <= RESIDENT_RATIO:
        reuse = _reuse(q, source, device, flushed)
        meaning = f"of the {bytes_text(l2_reads)} that the SMs read from L2, which served them"
        return Residency(
            Flag.L2_RESIDENT, reuse, (Evidence("dram_bytes_read", reads, "bytes", meaning),)
        )
    if ratio >= SERVED_BY_DRAM_RATIO:
        return _unknown(reads, source, device)
    meaning = f"of the {bytes_text(l2_reads)} that the SMs read from L2: part of them sat there"
    return Residency(evidence=(Evidence("dram_bytes_read", reads, "bytes", meaning),))


def _reuse(
    q: Mapping[str, float],
    source: Source,
    device: Device | None,
    flushed: Mapping[str, float] | None,
) -> Reuse:
    """Within: flushed before, or more bytes than L2 holds. Between: cold, DRAM served them."""
    if source.regime is Regime.COLD or source.cache_control == "all":
        return Reuse.WITHIN
    capacity, _ = _l2_capacity(device)
    if capacity is not None and q["l2_bytes_read"] > capacity:
        return Reuse.WITHIN
    if flushed is not None and "dram_reads_per_l2_read" in flushed:
        cold = flushed["dram_reads_per_l2_read"]
        if cold <= RESIDENT_RATIO:
            return Reuse.WITHIN
        if cold >= SERVED_BY_DRAM_RATIO:
            return Reuse.BETWEEN
    return Reuse.UNKNOWN


def _from_levels(q: Mapping[str, float], source: Source, device: Device | None) -> Residency:
    """A page without L2 bytes: levels, hit rate and the DRAM rate times the duration."""
    l2, dram = q.get("l2_throughput_pct"), q.get("dram_throughput_pct")
    duration, total = q.get("duration_us"), q.get("dram_bytes_read", q.get("dram_bytes"))
    if l2 is None or dram is None or duration is None:
        return Residency()
    at_least = l2 / 100.0 * duration * L2_FLOOR_BANDWIDTH
    busy = l2 >= MIN_L2_LEVEL_PCT and at_least >= MIN_TRAFFIC_BYTES
    if busy and dram <= RESIDENT_LEVEL_RATIO * l2 and _hits(q):
        meaning = (
            f"L2 at {l2:.0f} % of its peak with DRAM at {dram:.1f} %: L2 served the bytes "
            f"(this page has no L2 byte counts)"
        )
        return Residency(
            Flag.L2_RESIDENT,
            Reuse.WITHIN if source.cache_control == "all" else Reuse.UNKNOWN,
            (Evidence("dram_throughput_pct", dram, "%", meaning, RESIDENT_LEVEL_RATIO * l2),),
        )
    if total is not None and dram >= SERVED_BY_DRAM_RATIO * l2:
        return _unknown(total, source, device)
    return Residency()


def _hits(q: Mapping[str, float]) -> bool:
    return q.get("l2_hit_rate_pct", 100.0) >= 80.0


def _unknown(dram_bytes: float, source: Source, device: Device | None) -> Residency:
    """DRAM served bytes that fit into L2: after a flush that says nothing about reuse."""
    capacity, assumed = _l2_capacity(device)
    if capacity is None or not MIN_TRAFFIC_BYTES <= dram_bytes <= capacity:
        return Residency()
    if source.regime is Regime.WARM and source.replay_mode == "kernel":
        return _unsettled(dram_bytes, capacity)
    if source.cache_control == "none" or source.regime in (Regime.WARM, Regime.IN_SITU):
        return Residency()
    flushed = source.cache_control == "all" or source.regime is Regime.COLD
    meaning = (
        f"served by DRAM, but they fit into the {bytes_text(capacity)} of L2"
        f"{' (smallest of this architecture)' if assumed else ''}, and the capture "
        f"{'flushed' if flushed else 'may have flushed'} the caches: profile warm or in_situ"
    )
    return Residency(
        Flag.RESIDENCY_UNKNOWN, None, (Evidence("dram_bytes_read", dram_bytes, "bytes", meaning),)
    )


def _unsettled(dram_bytes: float, capacity: int) -> Residency:
    """Warm by kernel replay, yet from DRAM: saving and restoring memory may have evicted it."""
    if dram_bytes > SETTLES_BELOW * capacity:
        return Residency()
    meaning = (
        f"served by DRAM although they fit into the {bytes_text(capacity)} of L2: ncu's replay may "
        f"have evicted them between passes; profile in_situ or time it"
    )
    return Residency(
        Flag.RESIDENCY_UNKNOWN, None, (Evidence("dram_bytes_read", dram_bytes, "bytes", meaning),)
    )


def _l2_capacity(device: Device | None) -> tuple[int | None, bool]:
    """Nominal L2 bytes, and whether they are assumed from the compute capability."""
    if device is None:
        return None, False
    if device.l2_bytes is not None:
        return device.l2_bytes, False
    return SMALLEST_L2_BYTES.get(device.compute_capability or ""), True
