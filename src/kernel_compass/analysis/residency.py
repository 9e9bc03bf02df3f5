"""Did L2 serve the bytes, and whose earlier access put them there?

Answered from bytes: DRAM reads next to what the SMs read from L2. Hit rates are not needed, and
mislead for kernels that load by TMA. A details page carries no such bytes; there the DRAM level
next to the L2 level stands in, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.analysis.footprint import MIN_TRAFFIC_BYTES
from kernel_compass.records.device import Device
from kernel_compass.records.diagnosis import Evidence, Flag, Reuse
from kernel_compass.records.profile import Regime, Source
from kernel_compass.units import bytes_text

RESIDENT_RATIO = 0.12
"""DRAM reads up to about a tenth of the L2 reads: resident. ncu itself evicts up to 9 % of a
16.8 MB operand between two passes (measured, H200)."""
WITHIN_CAPACITIES = 2.0
"""L2 reads of this many L2 sizes with hardly any DRAM reads must re-use within the launch."""
RESIDENT_LEVEL_RATIO = 0.18
"""The same between levels (percent of peak): L2's peak is about twice DRAM's."""
RESIDENT_HIT_RATE_PCT = 90.0
"""And where only levels are known, L2 must hit this often (recorded: a transpose whose stores
load L2 hits 88 %, resident kernels 92 to 100 %)."""
SERVED_BY_DRAM_RATIO = 0.5
"""DRAM reads of at least half of the L2 reads: DRAM served them."""
SMALLEST_L2_BYTES: Mapping[str, int] = {
    "7.0": 6 << 20,
    "7.5": 1 << 20,
    "8.0": 24 << 20,
    "8.6": 2 << 20,
    "8.9": 12 << 20,
    "9.0": 50 << 20,
    "10.0": 126 << 20,
    "10.3": 126 << 20,
    "12.0": 24 << 20,
}
"""A low bound of L2 per compute capability, from small parts of each. Used only where the capture
does not state the L2 size, and said in the evidence."""
SETTLES_BELOW = 0.7
"""Share of the nominal L2 under which a re-read operand stays in it (measured: 0.77 on an H200,
0.71 to 0.80 on other data-centre GPUs)."""
MIN_L2_LEVEL_PCT = 5.0
"""L2 level under which a page without byte counts says nothing about residency."""
L2_FLOOR_BANDWIDTH = 1e6
"""Bytes per us assumed, as a low bound, for an L2 at full throughput (an H200's moves ten times
that)."""


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
    settled = source.cache_control == "none" or source.regime in (Regime.WARM, Regime.IN_SITU)
    if ratio >= SERVED_BY_DRAM_RATIO or not settled:
        unknown = _unknown(reads, source, device)
        if unknown.flag is not None or ratio >= SERVED_BY_DRAM_RATIO:
            return unknown
    meaning = f"of the {bytes_text(l2_reads)} that the SMs read from L2: part of them sat there"
    return Residency(evidence=(Evidence("dram_bytes_read", reads, "bytes", meaning),))


def _reuse(
    q: Mapping[str, float],
    source: Source,
    device: Device | None,
    flushed: Mapping[str, float] | None,
) -> Reuse:
    """Within: flushed before, or far more bytes than L2 holds. Between: cold, DRAM served them."""
    if source.regime is Regime.COLD or source.cache_control == "all":
        return Reuse.WITHIN
    if flushed is not None and "dram_reads_per_l2_read" in flushed:
        cold = flushed["dram_reads_per_l2_read"]
        if cold <= RESIDENT_RATIO:
            return Reuse.WITHIN
        return Reuse.BETWEEN if cold >= SERVED_BY_DRAM_RATIO else Reuse.UNKNOWN
    capacity, _ = _l2_capacity(device)
    if capacity is not None and q["l2_bytes_read"] > WITHIN_CAPACITIES * capacity:
        return Reuse.WITHIN
    return Reuse.UNKNOWN


def _from_levels(q: Mapping[str, float], source: Source, device: Device | None) -> Residency:
    """A page without L2 bytes: levels, hit rate and the DRAM rate times the duration."""
    l2, dram = q.get("l2_throughput_pct"), q.get("dram_throughput_pct")
    duration, total = q.get("duration_us"), q.get("dram_bytes_read", q.get("dram_bytes"))
    if l2 is None or dram is None or duration is None:
        return Residency()
    at_least = l2 / 100.0 * duration * L2_FLOOR_BANDWIDTH
    busy = l2 >= MIN_L2_LEVEL_PCT and at_least >= MIN_TRAFFIC_BYTES
    hits = q.get("l2_hit_rate_pct", 0.0) >= RESIDENT_HIT_RATE_PCT
    if busy and hits and dram <= RESIDENT_LEVEL_RATIO * l2:
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
        metric = "dram_bytes_read" if "dram_bytes_read" in q else "dram_bytes"
        return _unknown(total, source, device, metric)
    return Residency()


def _unknown(
    dram_bytes: float, source: Source, device: Device | None, metric: str = "dram_bytes_read"
) -> Residency:
    """DRAM served bytes that fit into L2: after a flush that says nothing about reuse."""
    capacity, assumed = _l2_capacity(device)
    if capacity is None or not MIN_TRAFFIC_BYTES <= dram_bytes <= capacity:
        return Residency()
    if source.regime is Regime.WARM and source.replay_mode == "kernel":
        return _unsettled(dram_bytes, capacity, metric)
    if source.cache_control == "none" or source.regime in (Regime.WARM, Regime.IN_SITU):
        return Residency()
    flushed = source.cache_control == "all" or source.regime is Regime.COLD
    meaning = (
        f"served by DRAM, but they fit into the {bytes_text(capacity)} of L2"
        f"{' (smallest of this architecture)' if assumed else ''}, and the capture "
        f"{'flushed' if flushed else 'may have flushed'} the caches: profile warm or in_situ"
    )
    return Residency(
        Flag.RESIDENCY_UNKNOWN, None, (Evidence(metric, dram_bytes, "bytes", meaning),)
    )


def _unsettled(dram_bytes: float, capacity: int, metric: str) -> Residency:
    """Warm by kernel replay, yet from DRAM: saving and restoring memory may have evicted it."""
    if dram_bytes > SETTLES_BELOW * capacity:
        return Residency()
    meaning = (
        f"served by DRAM although they fit into the {bytes_text(capacity)} of L2: ncu's replay may "
        f"have evicted them between passes; profile in_situ or time it"
    )
    return Residency(
        Flag.RESIDENCY_UNKNOWN, None, (Evidence(metric, dram_bytes, "bytes", meaning),)
    )


def _l2_capacity(device: Device | None) -> tuple[int | None, bool]:
    """Nominal L2 bytes, and whether they are assumed from the compute capability."""
    if device is None:
        return None, False
    if device.l2_bytes is not None:
        return device.l2_bytes, False
    return SMALLEST_L2_BYTES.get(device.compute_capability or ""), True
