"""Captures to reports: wires the readers to the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_compass.analysis.joining import report_joined, report_one
from kernel_compass.profiling.capture import read_capture
from kernel_compass.profiling.ncu_saved import read_saved
from kernel_compass.records.profile import Profile, Regime
from kernel_compass.records.report import Report

__all__ = ["diagnose_files", "diagnose_profiles", "read_capture"]


def diagnose_files(
    files: Sequence[Path],
    joined: Mapping[Regime, Path] | None = None,
    label: str | None = None,
) -> list[Report]:
    """One report per file, plus one for the files joined as regimes of one program.

    A folder that `profile --save` wrote counts as one file: its regimes are joined.

    Raises:
        CaptureError: a file holds no usable metric table.
        MissingDependency: a `.ncu-rep` file without a reader for it.
    """
    reports = [
        diagnose_profiles(
            read_saved(path) if path.is_dir() else [read_capture(path, label=label)], label
        )
        for path in files
    ]
    if joined:
        profiles = [read_capture(path, regime, label) for regime, path in joined.items()]
        reports.append(diagnose_profiles(profiles, label))
    return reports


def diagnose_profiles(profiles: Sequence[Profile], label: str | None = None) -> Report:
    """The report of one capture, or of several regimes of one program.

    Args:
        profiles: one, or several with different regimes.
        label: overrides the captures' own label.
    """
    if len(profiles) == 1:
        return report_one(profiles[0], label)
    return report_joined({p.source.regime: p for p in profiles}, label)
