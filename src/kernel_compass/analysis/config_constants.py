"""Constants of `config_estimate.py`, of one H200 at 1,980 MHz.

Fitted by `benchmarks/fit_config_estimate.py` to 1,920 configurations of 108 shapes and formats,
warm and cold (`benchmarks/results/h200/decode_searches.json.gz`, 2026-12-01):
the searches measured what looked sensible, at most 76 a shape, so bad configurations are rare.
A weight (H, K, N) left out of the fit at a time, Kendall's tau of its shapes' orders is 0.52 in the
median (lower quartile 0.35; in the fit 0.55), and the best of the estimate's first ten is 0.6 %
slower than the best measured in the mean, 8.4 % at worst, of 12 to 76 configurations in 128 orders.
They are no properties of the card: each makes up for what the formula leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping

H200: Mapping[str, float] = {
    "t0_us": 1.758,
    "l2_tb_s": 36.95,
    "l2_latency_us": 0.09473,
    "dram_tb_s": 3.964,
    "dram_latency_us": 0.4888,
    "store_tb_s": 2.228,
    "load_hint": 1.191,
    "store_hint": 0.7877,
    "overlap": 0.458,
    "wait_power": 0.4383,
    "step_us": 0.3308,
    "step_wgmma_us": 0.04117,
    "held": 0.7408,
    "l1_gb_s": 76.71,
    "mma_tflops": 636.3,
    "wgmma_tflops": 955.0,
    "convert_4": 14.36,
    "convert_8": 5.774,
    "convert_16": 10.83,
    "warps_wanted": 9.447,
    "few_warps_power": 0.376,
    "plain": 1.5,
    "spill": 0.1353,
    "wgmma_broad": 1.098,
    "meeting_us_kib": 0.08483,
    "split_us": 1.492,
    "norm": 3.127,
}
"""By the names that `estimates_us` uses."""
