"""The door for existing captures: a file ncu wrote becomes a `Profile`, or is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_compass.profiling.completeness import completeness_warnings
from kernel_compass.profiling.grouping import kernel_profiles, launch_profiles
from kernel_compass.profiling.launch_table import DeviceCells, LaunchTable
from kernel_compass.profiling.ncu_csv import CsvCapture
from kernel_compass.profiling.ncu_report_file import REPORT_MAGIC, read_report
from kernel_compass.profiling.text_source import TextSource
from kernel_compass.records.device import Device
from kernel_compass.records.profile import KernelProfile, Profile, Regime, Source, SourceFormat


def read_capture(
    path: str | Path,
    regime: Regime = Regime.UNKNOWN,
    label: str | None = None,
    each_launch: bool = False,
) -> Profile:
    """Read a capture of Nsight Compute: CSV (long or `--page raw`), or a `.ncu-rep` report.

    The content decides, not the suffix. CSV may be compressed by gzip or xz, in UTF-8 or
    UTF-16, in any locale and unit scaling, and mixed with program output.

    Args:
        path: the file.
        regime: where the streamed operands were before each launch, if known; a file cannot
            tell.
        label: a name for the capture.
        each_launch: every launch is a kernel of its own, in the order of launching.

    Raises:
        NotAMetricTable: there is no metric table of launches in it.
        AmbiguousCapture: its numbers can be read in two ways.
        DamagedCapture: it is cut, shifted, mixed or otherwise broken.
        MissingDependency: a report, and neither `ncu-report` nor ncu to read it.
    """
    path = Path(path)
    source = TextSource(path)
    if source.head[:4] == REPORT_MAGIC:
        read = read_report(path, source.compression)
        facts = _Facts(
            read.format,
            read.cache_control,
            read.clock_control,
            read.replay_mode,
            read.ncu_version,
        )
        return _profile(path, read.table, facts, regime, label, [], each_launch)
    capture = CsvCapture(source)
    long = SourceFormat.NCU_CSV_LONG if capture.is_long else SourceFormat.NCU_CSV_WIDE
    banners = capture.banners
    facts = _Facts(long, banners.cache_control, banners.clock_control)
    warnings = [f"ncu reported an error: {text}" for text in banners.errors]
    if capture.unterminated:
        warnings.append("the last line has no line end: the file may be cut.")
    return _profile(path, capture.table, facts, regime, label, warnings, each_launch)


@dataclass(frozen=True)
class _Facts:
    """What the file says about how it was taken."""

    format: SourceFormat
    cache_control: str | None
    clock_control: str | None
    replay_mode: str | None = None
    ncu_version: str | None = None


def _profile(
    path: Path,
    table: LaunchTable,
    facts: _Facts,
    regime: Regime,
    label: str | None,
    warnings: list[str],
    each_launch: bool,
) -> Profile:
    kernels = launch_profiles(table) if each_launch else kernel_profiles(table)
    device, more = _device(table, kernels)
    return Profile(
        source=Source(
            path=str(path),
            format=facts.format,
            regime=regime,
            cache_control=facts.cache_control,
            clock_control=facts.clock_control,
            replay_mode=facts.replay_mode,
            ncu_version=facts.ncu_version,
        ),
        device=device,
        kernels=kernels,
        warnings=(*warnings, *more, *completeness_warnings(table)),
        label=label,
    )


def _device(
    table: LaunchTable, kernels: tuple[KernelProfile, ...]
) -> tuple[Device | None, list[str]]:
    """The GPU model of the capture; a capture of several models keeps the first."""
    models: dict[Device, int | None] = {}
    for index, cells in table.devices.items():
        counts = {
            k.metrics["sm_count"] for k in kernels if "sm_count" in k.metrics and k.device == index
        }
        models.setdefault(_model(cells, counts), index)
    known = [model for model in models if model != Device()]
    if len(known) < 2:
        return (known[0] if known else None), []
    return known[0], [
        f"the capture holds launches of {len(known)} GPU models; the first is taken as its device."
    ]


def _model(cells: DeviceCells, sm_counts: set[float]) -> Device:
    name, sms, l2 = (cells.fields.get(field) for field in ("name", "sm_count", "l2_bytes"))
    if sms is None and len(sm_counts) == 1:
        sms = next(iter(sm_counts))
    return Device(
        name=name if isinstance(name, str) else None,
        compute_capability=cells.compute_capability,
        sm_count=round(sms) if isinstance(sms, float) else None,
        l2_bytes=round(l2) if isinstance(l2, float) else None,
    )
