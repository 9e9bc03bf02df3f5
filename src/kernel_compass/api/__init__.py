"""What users import: profile a program, diagnose captures, examine the machine."""

from kernel_compass.api.diagnosing import diagnose_files, diagnose_profiles, read_capture
from kernel_compass.api.machine import doctor
from kernel_compass.api.running import profile_target

__all__ = ["diagnose_files", "diagnose_profiles", "doctor", "profile_target", "read_capture"]
