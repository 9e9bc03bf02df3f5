"""Captures to reports: wires the readers to the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_compass.analysis.joining import report_joined, report_one
from kernel_compass.analysis.timeline_match import seen_in, with_notes
from kernel_compass.analysis.timeline_runs import FixedCost
from kernel_compass.api.calibration_choice import capture_calibration, missing_calibration
from kernel_compass.api.timelines import (
    OnError,
    diagnose_timeline,
    diagnose_timelines,
    is_timeline,
    told,
    traces_in,
)
from kernel_compass.errors import UsageError
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.capture_index import INDEX_NAME
from kernel_compass.profiling.ncu_saved import read_saved
from kernel_compass.records.device import Device
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.report import Report

__all__ = ["diagnose_files", "diagnose_profiles", "read_capture"]


def diagnose_files(
    files: Sequence[Path],
    joined: Mapping[Regime, Path] | None = None,
    label: str | None = None,
    calibration: str | None = None,
    on_error: OnError | None = None,
    timeline: Path | None = None,
) -> list[Report]:
    """One report per file, plus one for the files joined as regimes of one program.

    A folder that `profile --save` wrote counts as one file: its regimes are joined. Timelines of
    torch.profiler give a report for every process, whether in one file or in a folder.

    Args:
        files: captures, each reported by itself.
        joined: captures of one program, by regime.
        label: overrides the captures' own label.
        calibration: what headroom rests on: a name, a file, `this`, `none`; `None` = this
            machine's or the shipped one of the capture's own device, if there is one.
        on_error: takes what is wrong with one of the captures in a folder, and the others are
            reported; without it the first failure is raised.
        timeline: a trace of the program that the captures are of: it confirms or refutes what
            they suspect to be launch_bound.

    Raises:
        CalibrationError: the named calibration cannot be used.
        CaptureError: a file holds no usable metric table or timeline.
        MissingDependency: a `.ncu-rep` file without a reader for it.
    """
    reports: list[Report] = []
    seen = None if timeline is None else _one_process(timeline)
    for path in files:
        if path.is_dir():
            reports += _diagnose_folder(path, label, calibration, on_error, seen)
        elif is_timeline(path):
            reports += diagnose_timeline(path, label, calibration)
        else:
            profile = read_capture(path, label=label)
            reports.append(diagnose_profiles([profile], label, calibration, seen))
    if joined:
        _refuse_timelines(joined)
        profiles = [read_capture(path, regime, label) for regime, path in joined.items()]
        reports.append(diagnose_profiles(profiles, label, calibration, seen))
    return reports


def _diagnose_folder(
    folder: Path,
    label: str | None,
    calibration: str | None,
    on_error: OnError | None,
    timeline: Report | None,
) -> list[Report]:
    """What `profile --save` kept there, and the timelines beside it."""
    traces = traces_in(folder)
    reports: list[Report] = []
    if (folder / INDEX_NAME).exists() or not traces:
        with told(on_error):
            jobs = _jobs(read_saved(folder, on_error))
            reports = [diagnose_profiles(job, label, calibration, timeline) for job in jobs]
    return reports + diagnose_timelines(traces, label, calibration, on_error)


def _one_process(path: Path) -> Report:
    """The report of a trace that holds one process."""
    found = diagnose_timeline(path)
    if len(found) > 1:
        raise UsageError(
            f"--timeline {path} holds {len(found)} processes; which of them the capture is of is "
            "not known.",
            "Hand in the trace of one rank.",
        )
    return found[0]


def _refuse_timelines(joined: Mapping[Regime, Path]) -> None:
    for regime, path in joined.items():
        if path.is_file() and is_timeline(path):
            raise UsageError(
                f"{path}, named as {regime.value}, is a timeline: it shows the program as it runs, "
                "which is in_situ, and has no counters to join.",
                f"Report it by itself: kernel-compass diagnose {path}.",
            )


def diagnose_profiles(
    profiles: Sequence[Profile],
    label: str | None = None,
    calibration: str | None = None,
    timeline: Report | None = None,
) -> Report:
    """The report of one capture, or of several regimes of one program.

    Args:
        profiles: one, or several with different regimes.
        label: overrides the captures' own label.
        calibration: as in `diagnose_files`.
        timeline: the report of a trace of the same program.

    Raises:
        CalibrationError: the named calibration cannot be used.
        UsageError: two captures of the same regime, which cannot be one program's, or a timeline
            of another GPU.
    """
    regimes = [p.source.regime for p in profiles]
    if len(set(regimes)) < len(regimes) or not regimes:
        names = ", ".join(regime.value for regime in regimes) or "none"
        raise UsageError(
            f"Captures of one program need a regime each; these have: {names}.",
            "Name each once: --regime warm=FILE --regime cold=FILE.",
        )
    device = next((p.device for p in profiles if p.device is not None), None)
    notes: list[str] = []
    machine = capture_calibration(calibration, device, notes.append)
    seen = None
    if timeline is not None:
        _refuse_another_gpu(timeline, device)
        fixed = FixedCost.of(machine.t0_graph_us.value if machine else None)
        seen = seen_in(
            timeline, {k.identity: k for p in profiles for k in p.kernels}.values(), fixed
        )
    if len(profiles) == 1:
        report = report_one(profiles[0], label, machine, seen)
    else:
        report = report_joined({p.source.regime: p for p in profiles}, label, machine, seen)
    if timeline is not None:
        report = with_notes(report, timeline.sources[0].path or "given")
    if machine is None:
        notes += missing_calibration(calibration, device, "no headroom")
    return replace(report, warnings=(*report.warnings, *notes)) if notes else report


def _refuse_another_gpu(timeline: Report, device: Device | None) -> None:
    theirs = timeline.device.name if timeline.device else None
    mine = device.name if device else None
    if mine is not None and theirs is not None and mine != theirs:
        raise UsageError(
            f"The timeline is of an {theirs}, the capture of an {mine}: launches of one say "
            "nothing of the other.",
            "Record both on one GPU, or report each by itself.",
        )


def _jobs(profiles: Sequence[Profile]) -> list[list[Profile]]:
    """The captures of a folder, one list for each profiling job that was saved there."""
    jobs: list[list[Profile]] = []
    for profile in profiles:
        known = jobs[-1] if jobs else []
        same = known and known[0].label == profile.label
        if same and profile.source.regime not in [p.source.regime for p in known]:
            known.append(profile)
        else:
            jobs.append([profile])
    return jobs
