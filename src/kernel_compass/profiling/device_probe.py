"""Which GPUs the machine has, asked of nvidia-smi: CUDA is never initialised here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from kernel_compass.errors import ProfilingCause, ProfilingError
from kernel_compass.profiling import metric_lists
from kernel_compass.profiling.quiet_run import run_quietly

_TIMEOUT_S = 30.0
_LARGEST_ANSWER = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver lists it."""

    name: str
    compute_capability: str | None
    """`major.minor`; `None` where the driver is too old to say."""
    driver: str


@dataclass(frozen=True)
class MetricChoice:
    """The metric names for a machine's GPUs, and what to tell about the choice."""

    full: tuple[str, ...]
    residency: tuple[str, ...]
    one_pass: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def ask_smi(*options: str, timeout_s: float = _TIMEOUT_S) -> str | None:
    """What nvidia-smi says, `None` where it is missing, fails or floods.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
    """
    try:
        done = run_quietly(["nvidia-smi", *options], timeout_s, largest_bytes=_LARGEST_ANSWER)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def query_smi(fields: str, timeout_s: float = _TIMEOUT_S) -> list[list[str]] | None:
    """Ask nvidia-smi for fields of every GPU, `None` where it does not answer.

    Args:
        fields: comma-separated names, as `nvidia-smi --help-query-gpu` lists them.
        timeout_s: seconds until it counts as not answering.
    """
    options = (f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    try:
        said = ask_smi(*options, timeout_s=timeout_s)
    except subprocess.TimeoutExpired:
        return None
    if said is None:
        return None
    return [[c.strip() for c in line.split(",")] for line in said.splitlines() if line]


def probe_gpus() -> tuple[Gpu, ...]:
    """The GPUs in the driver's order; empty where nvidia-smi is missing or does not answer."""
    rows = query_smi("name,compute_cap,driver_version")
    if rows is None:
        older = query_smi("name,driver_version") or []
        return tuple(Gpu(row[0], None, row[-1]) for row in older if len(row) >= 2)
    return tuple(_gpu(row) for row in rows if len(row) >= 3)


def _gpu(row: list[str]) -> Gpu:
    name, capability, driver = ", ".join(row[:-2]), row[-2], row[-1]
    known = capability.replace(".", "", 1).isdigit()
    return Gpu(name, capability if known else None, driver)


def choose_metrics(gpus: Iterable[Gpu], ncu_version: str | None = None) -> MetricChoice:
    """The metric lists for these GPUs and this ncu (`2025.3.1`).

    Several architectures get the union (a GPU that lacks a name reports it as n/a), as do GPUs
    that nobody can name.

    Raises:
        ProfilingError: every GPU is older than Nsight Compute supports (`unsupported_gpu`).
    """
    gpus = tuple(gpus)
    known = {gpu.compute_capability for gpu in gpus if gpu.compute_capability}
    usable = sorted((cc for cc in known if metric_lists.is_supported(cc)), key=_order)
    if known and not usable:
        names = ", ".join(f"{g.name} ({g.compute_capability})" for g in gpus)
        raise ProfilingError(
            ProfilingCause.UNSUPPORTED_GPU,
            f"Nsight Compute profiles no GPU of this machine: {names}.",
            f"A GPU of compute capability {metric_lists.OLDEST} (Volta) or newer is needed.",
        )
    wanted = usable or list(metric_lists.ARCHITECTURES)
    return MetricChoice(
        full=metric_lists.union(
            (
                *(metric_lists.metric_list(cc) for cc in wanted),
                metric_lists.source_metrics(ncu_version),
            )
        ),
        residency=metric_lists.union(metric_lists.residency_list(cc) for cc in wanted),
        one_pass=metric_lists.union(metric_lists.one_pass_list(cc) for cc in wanted),
        warnings=tuple(_warnings(usable)),
    )


def _order(compute_capability: str) -> list[int]:
    return [int(n) for n in compute_capability.split(".")]


def _warnings(usable: list[str]) -> Iterable[str]:
    if not usable:
        yield (
            "the GPU's architecture is unknown (nvidia-smi does not tell): the metrics of all "
            "architectures are asked for, and those it lacks are reported as not available."
        )
    architectures = {metric_lists.architecture_of(cc) for cc in usable}
    if len(architectures) > 1:
        yield (
            f"the machine has GPUs of several architectures ({', '.join(usable)}): the metrics "
            "of all are asked for, and those that a GPU lacks are reported as not available."
        )
    for cc in usable:
        nearest = metric_lists.architecture_of(cc)
        if nearest != cc:
            yield (
                f"no metric list is known for compute capability {cc}; that of {nearest} is used "
                "and may lack some metrics."
            )
