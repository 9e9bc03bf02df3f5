"""Mistakes in honest kernels are found: almost all, and each that is not is accounted for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from mutants import COMMON, SUBJECTS  # noqa: E402
from trying import tried  # noqa: E402

from kernel_compass.records.trial import Reason  # noqa: E402

NO_FINDING = {
    (
        "heads",
        "partial sums in fp16",
    ): "a quarter of what rounding the fp16 output costs is allowed",
    ("rms_norm", "squares in fp16"): "the mean of squares is rounded to 2^-12; the output is too",
    ("product", "accumulates in bf16"): "sixteen roundings, found at most sizes and not at all",
    ("product", "partial sums in bf16"): "a few roundings as the output's own, to bf16",
}
"""Mutants that may pass: what they change is no more than the declared type's rounding."""
NAMES = {
    "last row unwritten": {Reason.PARTIAL_RESULT},
    "tail of 16 columns stale": {Reason.PARTIAL_RESULT},
    "NaN in one place": {Reason.NOT_FINITE},
    "output rounded to e4m3": {Reason.LOW_PRECISION},
    "wrong for one row only": {Reason.WRONG_ELSEWHERE, Reason.WRONG_RESULT},
}
"""What a finding has to be called."""
OTHERS = {
    Reason.WRONG_RESULT,
    Reason.WRONG_ELSEWHERE,
    Reason.KNOWS_THE_SEED,  # a mistake that the inputs of the public seed happen not to show
    Reason.LOW_PRECISION,
    Reason.NOT_FINITE,
    Reason.PARTIAL_RESULT,
}


def test_there_are_enough():
    assert len(SUBJECTS) == 10
    assert sum(len(one.bugs) for one in SUBJECTS) >= 200
    assert len(NO_FINDING) < 0.05 * sum(len(one.bugs) for one in SUBJECTS)
    assert set(NAMES) <= set(COMMON)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", SUBJECTS, ids=lambda one: one.name)
def test_every_mistake_is_found(one):
    assert tried(one.problem, one.make(None)).reason is None
    for bug in one.bugs:
        said = tried(one.problem, one.make(bug))
        if said.reason is None:
            assert (one.name, bug) in NO_FINDING, f"{bug}: {said.detail}"
        else:
            assert said.reason in NAMES.get(bug, OTHERS), f"{bug}: {said.reason} {said.detail}"
