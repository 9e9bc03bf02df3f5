"""The GPUs of this process as CUDA would name them: MIG slices, CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_compass.profiling.device_probe import ask_smi, query_smi

_GPU_LINE = re.compile(r"GPU (?P<index>\d+): (?P<name>.*) \(UUID: (?P<uuid>\S+)\)")
_MIG_LINE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>\S+)\)")
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class VisibleGpu:
    """A GPU, or a slice of one, that this process may use."""

    name: str
    """As CUDA calls it: `NVIDIA H200`, `NVIDIA H100 80GB HBM3 MIG 1g.10gb`."""
    uuid: str
    index: str
    """As nvidia-smi counts; a slice has its GPU's."""


def visible_gpus(environ: Mapping[str, str] = os.environ) -> tuple[VisibleGpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves, in its order; empty where nvidia-smi does not answer.

    A number there counts in the order of nvidia-smi, which is CUDA's own unless the GPUs differ
    and CUDA_DEVICE_ORDER is not PCI_BUS_ID.
    """
    try:
        return gpus_within(_TIMEOUT_S, environ)
    except subprocess.TimeoutExpired:
        return ()


def gpus_within(
    timeout_s: float, environ: Mapping[str, str] = os.environ
) -> tuple[VisibleGpu, ...]:
    """The same for who would rather go without than wait.

    Raises:
        subprocess.TimeoutExpired: nvidia-smi did not answer in time.
    """
    everything = _parsed(ask_smi("-L", timeout_s=timeout_s) or "")
    wanted = environ.get("CUDA_VISIBLE_DEVICES")
    return everything if wanted is None else _chosen(everything, wanted)


def driver_version(timeout_s: float = _TIMEOUT_S) -> str | None:
    """The driver's version, `None` where nvidia-smi does not tell in time."""
    rows = query_smi("driver_version", timeout_s)
    return rows[0][0] if rows and rows[0] and rows[0][0] else None


def _parsed(text: str) -> tuple[VisibleGpu, ...]:
    """GPUs; one that is split into MIG slices is its slices."""
    gpus: list[VisibleGpu] = []
    whole: VisibleGpu | None = None
    for line in text.splitlines():
        if found := _GPU_LINE.match(line):
            whole = VisibleGpu(found["name"], found["uuid"], found["index"])
            gpus.append(whole)
        elif (found := _MIG_LINE.match(line)) and whole is not None:
            if gpus[-1] is whole:
                gpus.pop()
            name = f"{whole.name} MIG {found['profile']}"
            gpus.append(VisibleGpu(name, found["uuid"], whole.index))
    return tuple(gpus)


def _chosen(gpus: tuple[VisibleGpu, ...], wanted: str) -> tuple[VisibleGpu, ...]:
    """CUDA's rule: indices or the beginnings of UUIDs, and nothing after the first wrong one."""
    chosen = []
    for word in map(str.strip, wanted.split(",")):
        fitting = [g for g in gpus if word and (g.index == word or g.uuid.startswith(word))]
        if not fitting:
            break
        chosen.append(fitting[0])
    return tuple(chosen)
