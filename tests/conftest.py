"""GPU tests run where there is a GPU; elsewhere they are skipped by name, with the reason."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

REQUIRE_GPU = "KERNEL_COMPASS_REQUIRE_GPU"
"""Set by `make test-gpu`: there, a missing GPU is a failure and not a skip."""

if not os.environ.get(REQUIRE_GPU):
    # Before torch is imported, and for all processes that tests start. The products are small, the
    # suite runs in two processes on two cores: a second thread of each only waits, and takes time.
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(_name, "1")


if find_spec("hypothesis") is not None:  # a machine for GPU tests may lack it
    from hypothesis import HealthCheck, settings

    # A busy machine is no fault of the code: what is slow is seen in durations.
    settings.register_profile(
        "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("any machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("nvidia-smi") or os.environ.get(REQUIRE_GPU):
        return
    reason = pytest.mark.skip(reason="no NVIDIA driver here (nvidia-smi); run `make test-gpu`")
    for item in items:
        if item.get_closest_marker("gpu") or item.get_closest_marker("ncu"):
            item.add_marker(reason)
