"""What users import: profile, diagnose, advise, measure, compare; calibrate the machine.

A door is opened when it is asked for, so that advising does not pay for reading captures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_compass.api.advising import advise, advise_model
    from kernel_compass.api.calibrating import calibrate
    from kernel_compass.api.calibrations import (
        calibration,
        check_calibration_store,
        machine_calibration,
        save_calibration,
        shipped_calibration,
        shipped_calibrations,
    )
    from kernel_compass.api.comparing import compare, hold_out
    from kernel_compass.api.diagnosing import diagnose_files, diagnose_profiles, read_capture
    from kernel_compass.api.judging import run_self_test, self_test_fields
    from kernel_compass.api.kernel_plans import check_implementations, plan_kernels
    from kernel_compass.api.kernel_requests import TableRequest, mla_items, sweep_items
    from kernel_compass.api.kernels import open_table, profile_kernels
    from kernel_compass.api.loop_requests import loop_options, study_request
    from kernel_compass.api.machine import doctor
    from kernel_compass.api.measuring import (
        ColdCheck,
        Recipe,
        Subject,
        TimingOptions,
        measure,
        open_device,
        verify_cold,
        watch,
    )
    from kernel_compass.api.optimizing import optimize, resume_study
    from kernel_compass.api.replaying import Replay, replay_study
    from kernel_compass.api.running import profile_target, profile_timeline
    from kernel_compass.api.studies import (
        apply_study,
        export_study,
        forget_ideas,
        list_studies,
        rejected_ideas,
        revert_study,
        studies_folder,
        study,
    )
    from kernel_compass.api.timelines import diagnose_timeline
    from kernel_compass.api.validating import (
        ValidateRequest,
        Validation,
        candidate_named,
        validate,
        validate_candidate,
    )
    from kernel_compass.validation.self_test import CheatResult

__all__ = [
    "CheatResult",
    "ColdCheck",
    "Recipe",
    "Replay",
    "Subject",
    "TableRequest",
    "TimingOptions",
    "ValidateRequest",
    "Validation",
    "advise",
    "advise_model",
    "apply_study",
    "calibrate",
    "calibration",
    "candidate_named",
    "check_calibration_store",
    "check_implementations",
    "compare",
    "diagnose_files",
    "diagnose_profiles",
    "diagnose_timeline",
    "doctor",
    "export_study",
    "forget_ideas",
    "hold_out",
    "list_studies",
    "loop_options",
    "machine_calibration",
    "measure",
    "mla_items",
    "open_device",
    "open_table",
    "optimize",
    "plan_kernels",
    "profile_kernels",
    "profile_target",
    "profile_timeline",
    "read_capture",
    "rejected_ideas",
    "replay_study",
    "resume_study",
    "revert_study",
    "run_self_test",
    "save_calibration",
    "self_test_fields",
    "shipped_calibration",
    "shipped_calibrations",
    "studies_folder",
    "study",
    "study_request",
    "sweep_items",
    "validate",
    "validate_candidate",
    "verify_cold",
    "watch",
]

_MODULES = {
    "advising": ("advise", "advise_model"),
    "calibrations": (
        "calibration",
        "check_calibration_store",
        "machine_calibration",
        "save_calibration",
        "shipped_calibration",
        "shipped_calibrations",
    ),
    "comparing": ("compare", "hold_out"),
    "diagnosing": ("diagnose_files", "diagnose_profiles", "read_capture"),
    "kernel_plans": ("check_implementations", "plan_kernels"),
    "kernel_requests": ("TableRequest", "mla_items", "sweep_items"),
    "kernels": ("open_table", "profile_kernels"),
    "judging": ("CheatResult", "run_self_test", "self_test_fields"),
    "machine": ("doctor",),
    "calibrating": ("calibrate",),
    "measuring": (
        "ColdCheck",
        "Recipe",
        "Subject",
        "TimingOptions",
        "measure",
        "open_device",
        "verify_cold",
        "watch",
    ),
    "loop_requests": ("loop_options", "study_request"),
    "optimizing": ("optimize", "resume_study"),
    "replaying": ("Replay", "replay_study"),
    "running": ("profile_target", "profile_timeline"),
    "studies": (
        "apply_study",
        "export_study",
        "forget_ideas",
        "rejected_ideas",
        "revert_study",
        "list_studies",
        "studies_folder",
        "study",
    ),
    "timelines": ("diagnose_timeline",),
    "validating": (
        "ValidateRequest",
        "Validation",
        "candidate_named",
        "validate",
        "validate_candidate",
    ),
}
"""Module of this package -> the doors in it."""
_HOMES = {door: module for module, doors in _MODULES.items() for door in doors}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
