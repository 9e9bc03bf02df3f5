"""Counters of ncu that more than one part names, as ncu names them."""

from __future__ import annotations

DRAM_BYTES_READ = "dram__bytes_read.sum"
L2_SECTORS_READ = "lts__t_sectors_srcunit_tex_op_read.sum"
"""Sectors that multiprocessors read from L2."""
SECTOR_BYTES = 32
