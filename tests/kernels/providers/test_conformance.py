"""Every implementation that can run on a CPU, through the whole conformance suite."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="providers compute on tensors: torch is not installed")

import conformance

from kernel_compass.kernels.providers.registry import all_implementations, implementation
from kernel_compass.records.contracts import Implementation

NAMES = [one.name for one in all_implementations()]


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__[6:])
@pytest.mark.parametrize("name", NAMES)
def test_conforms_on_a_cpu(name: str, check: Callable[[Implementation, str], None]) -> None:
    one = implementation(name)
    if why := conformance.reasons(one, "cpu"):
        pytest.skip(f"{name} cannot run on a CPU: {why[0]}")
    check(one, "cpu")
