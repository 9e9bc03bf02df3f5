"""What int8 products with activations quantized in the kernel do beyond what all wider ones do."""

from __future__ import annotations

import pytest
from kernel_cases import INTERPRETER_WARNING, torch_with_interpreter

torch = torch_with_interpreter()

import wider_conformance as conformance  # noqa: E402

from kernel_compass.kernels.providers.own_wider import OWN_W8A8  # noqa: E402

SHAPE = (2, 20, 600, 40)


@pytest.mark.filterwarnings(INTERPRETER_WARNING)
def test_an_int8_row_does_not_depend_on_the_tile():
    (configs,) = (t.configs for t in conformance.TESTED if t.implementation is OWN_W8A8)
    cases = [conformance.Case(torch, OWN_W8A8, "w8a8_int8", SHAPE, config) for config in configs]
    a = cases[0].activations(torch.bfloat16)
    first, *others = (case.run(a) for case in cases)
    assert len(others) > 1 and all(torch.equal(first, other) for other in others)
