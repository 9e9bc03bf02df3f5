"""Timelines to reports: files and folders of traces, one report a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_compass.analysis.ceilings import Ceilings
from kernel_compass.analysis.floor import Floors
from kernel_compass.analysis.joining import foreign_calibration
from kernel_compass.analysis.timeline_diagnosis import Floor
from kernel_compass.analysis.timeline_report import report_timeline
from kernel_compass.analysis.timeline_runs import FixedCost
from kernel_compass.api.calibration_choice import capture_calibration, missing_calibration
from kernel_compass.errors import CalibrationError, CaptureError
from kernel_compass.profiling.capture_index import INDEX_NAME
from kernel_compass.profiling.kineto import looks_like_json, read_traces
from kernel_compass.profiling.text_source import TextSource
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.profile import Regime
from kernel_compass.records.report import Report
from kernel_compass.records.trace import Trace
from kernel_compass.records.workload import Traffic

OnError = Callable[[CaptureError], None]
"""Takes what is wrong with one of several captures."""

_SUFFIXES = (".json", ".json.gz", ".json.xz")


def is_timeline(path: Path) -> bool:
    """Whether a file is read as a timeline: it is JSON, or its name says so.

    Raises:
        CaptureError: it is empty, or no file that can be read.
    """
    return path.name.lower().endswith(_SUFFIXES) or looks_like_json(TextSource(path))


def traces_in(folder: Path) -> list[Path]:
    """The traces in a folder, by name; other JSON is none. A file that is named like a trace and
    cannot be read is among them: reading it says why."""
    named = [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(_SUFFIXES)]
    return [path for path in named if path.is_file() and _holds_events(path)]


def _holds_events(path: Path) -> bool:
    if path.name == INDEX_NAME or path.stat().st_size == 0:
        return False
    try:
        head = TextSource(path).head
    except CaptureError:
        return True
    return b'"traceEvents"' in head or head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"[")


def diagnose_timeline(
    path: Path, label: str | None = None, calibration: str | None = None
) -> list[Report]:
    """One report for every process in a trace file.

    Args:
        path: what torch.profiler exported.
        label: overrides the title.
        calibration: what estimates and headroom rest on: a name, a file, `this`, `none`; `None` =
            this machine's or the shipped one of the trace's own GPU, if there is one.

    Raises:
        NotATimeline: no JSON, other JSON, or a trace without GPU events.
        AmbiguousCapture: several ranks in one file that cannot be taken apart.
        DamagedCapture: it is cut off or malformed, or times are impossible.
        CalibrationError: the named calibration cannot be used.
    """
    return diagnose_traces(read_traces(path), label, calibration)


def diagnose_timelines(
    paths: Sequence[Path],
    label: str | None = None,
    calibration: str | None = None,
    on_error: OnError | None = None,
) -> list[Report]:
    """One report for every process in the traces of one program, in the order of their ranks.

    Args:
        paths: the traces.
        label: as for `diagnose_timeline`.
        calibration: as for `diagnose_timeline`.
        on_error: takes what is wrong with a trace, and the others are reported; without it the
            first failure is raised.
    """
    reports: list[tuple[tuple[int, str], Report]] = []
    for path in paths:  # one at a time: a trace is large, its report is not
        with told(on_error):
            for trace in read_traces(path):
                rank = -1 if trace.rank is None else trace.rank
                (report,) = diagnose_traces([trace], label, calibration)
                reports.append(((rank, str(path)), report))
    return [report for _, report in sorted(reports, key=lambda pair: pair[0])]


@contextmanager
def told(on_error: OnError | None) -> Iterator[None]:
    """Hand a capture's failure over where somebody takes it, else let it through."""
    try:
        yield
    except CaptureError as error:
        if on_error is None:
            raise
        on_error(error)


def diagnose_traces(
    traces: Sequence[Trace], label: str | None = None, calibration: str | None = None
) -> list[Report]:
    """One report a trace; arguments as for `diagnose_timeline`."""
    return [_report(trace, label, calibration) for trace in traces]


def _report(trace: Trace, label: str | None, word: str | None) -> Report:
    notes: list[str] = []
    machine = capture_calibration(word, trace.device, notes.append)
    if machine is None:
        report = report_timeline(trace, label)
        notes += missing_calibration(word, trace.device, "no estimates, no headroom")
        return replace(report, warnings=(*report.warnings, *notes))
    notes += foreign_calibration(trace.device, machine)
    ceilings: Ceilings | None = None
    try:
        ceilings = Ceilings.of(machine)
    except CalibrationError as error:
        notes.append(f"no bandwidth is judged: {error.found}")
    fixed = FixedCost.of(machine.t0_graph_us.value)
    report = report_timeline(trace, label, ceilings, floor_by(machine), fixed)
    warnings = (*report.warnings, *notes)
    return replace(report, warnings=warnings, calibration=machine.name)


def floor_by(machine: Calibration) -> Floor:
    """The least time of an operator's traffic by a calibration."""
    floors = Floors(machine)

    def floor_us(traffic: Traffic, regime: Regime) -> float | None:
        """`None` where a launch's fixed cost decides: a kernel's duration does not hold it."""
        found = floors.of(traffic, regime)
        return None if found is None or found.bound == "launch" else found.time_us

    return floor_us
