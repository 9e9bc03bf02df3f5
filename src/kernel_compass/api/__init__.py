"""What users import: profile a program, diagnose captures, examine and calibrate the machine."""

from kernel_compass.api.calibrating import (
    calibration,
    check_calibration_store,
    machine_calibration,
    save_calibration,
    shipped_calibration,
    shipped_calibrations,
)
from kernel_compass.api.diagnosing import diagnose_files, diagnose_profiles, read_capture
from kernel_compass.api.machine import doctor
from kernel_compass.api.measuring import calibrate
from kernel_compass.api.running import profile_target

__all__ = [
    "calibrate",
    "calibration",
    "check_calibration_store",
    "diagnose_files",
    "diagnose_profiles",
    "doctor",
    "machine_calibration",
    "profile_target",
    "read_capture",
    "save_calibration",
    "shipped_calibration",
    "shipped_calibrations",
]
