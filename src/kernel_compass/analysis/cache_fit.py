"""Whether a working set stays in L2 when it is re-read: a soft transition, not a gate."""

from __future__ import annotations

from math import exp

from kernel_compass.records.advice import CacheFit
from kernel_compass.records.calibration import Calibration

TRANSITION_WIDTH = 0.08
"""Of the capacity transition, in the logarithm of the working set: misses go from 12 % to 88 %
within +-16 % of the capacity, as DRAM counters of re-read buffers do on Hopper."""
EDGE = 2 * TRANSITION_WIDTH
"""Within so much of the capacity (logarithm) 12 % to 88 % miss: neither in L2 nor out of it."""


def cache_fit(working_set_bytes: int, calibration: Calibration) -> CacheFit:
    """Whether a working set stays in L2; `edge` within the transition around the interval in
    which the capacity is known to lie."""
    capacity = calibration.c_eff_bytes
    if capacity.value is None:
        return CacheFit.UNKNOWN
    low = capacity.value if capacity.low is None else capacity.low
    high = capacity.value if capacity.high is None else capacity.high
    if working_set_bytes <= low * exp(-EDGE):
        return CacheFit.FITS
    return CacheFit.SPILLS if working_set_bytes > high * exp(EDGE) else CacheFit.EDGE
