"""Constants of `config_estimate.py`, of one H200 at 1,980 MHz.

Fitted by `benchmarks/fit_config_estimate.py --without 16x4096x14336` to the six recorded spaces of
128 heads in fp8 (every configuration, compiled) and to 106 shapes and formats of searches in bf16,
fp8 and 4 bits, which count a fifth of that: they measured what looked sensible, and older kernels.
The linear layer 16x4096x14336 was left out of both: nothing here was tuned on it.
A space's shape left out of all files at a time, Kendall's tau of its order is 0.66 in the median of
14 orders (0.52 to 0.78; in the fit 0.68), and the best of the estimate's first ten is 1.6 % slower
than the best of the space in the mean, 6.3 % at worst.
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
