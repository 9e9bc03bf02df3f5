"""Name each kernel's bottleneck and print the table, under the project's first names."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence

from kernel_compass.api import diagnose_profiles
from kernel_compass.records.profile import KernelProfile, Profile, Source, SourceFormat
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render
from profiling._profiles import Profiles

__all__ = ["classify", "report"]


def classify(profiles: Sequence[KernelProfile]) -> Profiles:
    """The same kernels with their `bottleneck` set, ranked by share of time."""
    capture = _capture(profiles)
    diagnosed = diagnose_profiles([capture])
    return Profiles(capture, [k.kernel for k in diagnosed.kernels])


def report(profiles: Sequence[KernelProfile], label: str | None = None) -> str:
    """The terminal report of these kernels."""
    width = shutil.get_terminal_size((100, 24)).columns
    return render(diagnose_profiles([_capture(profiles)], label), Format.TERMINAL, width, False)


def _capture(profiles: Sequence[KernelProfile]) -> Profile:
    kernels = tuple(profiles)
    if isinstance(profiles, Profiles):
        return dataclasses.replace(profiles.capture, kernels=kernels)
    return Profile(Source(None, SourceFormat.NCU_CSV_LONG), None, kernels)
