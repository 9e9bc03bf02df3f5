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
    "t0_us": 1.709,
    "l2_tb_s": 19.67,
    "l2_latency_us": 0.1132,
    "dram_tb_s": 4.919,
    "dram_latency_us": 0.4451,
    "store_tb_s": 7.107,
    "load_hint": 1.071,
    "store_hint": 0.9377,
    "loop": 1.607,
    "chunk_kib": 7.02,
    "fence": 0.1122,
    "wait": 1.783,
    "chains_power": 0.1423,
    "warp_us_2048": 0.06234,
    "l1_gb_s": 219.5,
    "mma_tflops": 4154.0,
    "wgmma_tflops": 2695.0,
    "convert_4": 12.58,
    "convert_8": 10.07,
    "convert_16": 47.8,
    "warps_wanted": 20.0,
    "few_warps_power": 0.2031,
    "plain": 1.264,
    "spill": 0.1389,
    "occupancy": 0.09244,
    "meeting_us_kib": 0.02463,
    "sync_us": 0.05089,
    "split_us": 0.912,
    "norm": 1.662,
    "chain_norm": 1.861,
}
"""By the names that `estimates_us` uses."""
