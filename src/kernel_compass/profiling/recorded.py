"""Captures that the package ships, so that everything after profiling runs without a GPU.

Recorded on one NVIDIA H200 (132 SMs, 60 MiB of L2) with ncu 2025.3.1, driver 580, PyTorch
2.11+cu130, on 2026-12-01, trimmed to the metrics that the project reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.ncu_saved import read_saved
from kernel_compass.records.profile import Profile

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "two_bmms": "two bf16 bmms of one decode step, weights of 16.8 MB and 134 MB, 200 MB of "
        "other work between them",
        "decode_block": "a Llama-8B-like decoder block in plain PyTorch, 16 tokens, 4,096 KV",
    }
)
"""The shipped recordings and what each shows."""


def recorded_path(name: str) -> Path:
    """A recording: a folder that `profile --save` wrote, or one capture file."""
    folder = Path(str(files("kernel_compass.profiling"))) / "captures" / "h200"
    return folder / name if (folder / name).is_dir() else folder / f"{name}.csv.xz"


def recorded_profiles(name: str) -> tuple[Profile, ...]:
    """One recording, read: a profile per regime, or one of unknown regime."""
    path = recorded_path(name)
    return read_saved(path) if path.is_dir() else (read_capture(path, label=name),)
