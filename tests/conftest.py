"""GPU tests run where there is a GPU; elsewhere they are skipped by name, with the reason."""

from __future__ import annotations

import os
import shutil

import pytest

REQUIRE_GPU = "KERNEL_COMPASS_REQUIRE_GPU"
"""Set by `make test-gpu`: there, a missing GPU is a failure and not a skip."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("nvidia-smi") or os.environ.get(REQUIRE_GPU):
        return
    reason = pytest.mark.skip(reason="no NVIDIA driver here (nvidia-smi); run `make test-gpu`")
    for item in items:
        if item.get_closest_marker("gpu") or item.get_closest_marker("ncu"):
            item.add_marker(reason)
