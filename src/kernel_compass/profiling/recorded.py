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
from kernel_compass.records.profile import Profile, Regime

_FILES: Mapping[str, Mapping[Regime, str]] = MappingProxyType(
    {
        "two_bmms": MappingProxyType(
            {
                Regime.WARM: "two_bmms_warm.csv.xz",
                Regime.IN_SITU: "two_bmms_in_situ.csv.xz",
                Regime.COLD: "two_bmms_cold.csv.xz",
            }
        ),
        "decode_block": MappingProxyType({Regime.UNKNOWN: "decode_block.csv.xz"}),
    }
)

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "two_bmms": "two bf16 bmms of one decode step, weights of 16.8 MB and 134 MB, other work "
        "between them",
        "decode_block": "a Llama-8B-like decoder block in plain PyTorch, 16 tokens, 4,096 KV",
    }
)
"""What each recording shows."""


def recorded_names() -> tuple[str, ...]:
    """Names of the shipped recordings."""
    return tuple(_FILES)


def recorded_paths(name: str) -> dict[Regime, Path]:
    """The files of one recording, by regime."""
    folder = Path(str(files("kernel_compass.profiling"))) / "captures" / "h200"
    return {regime: folder / file for regime, file in _FILES[name].items()}


def recorded_profiles(name: str) -> tuple[Profile, ...]:
    """One recording, read: a profile per regime."""
    return tuple(
        read_capture(path, regime, label=name) for regime, path in recorded_paths(name).items()
    )
