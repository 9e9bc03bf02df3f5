"""Documents: the same bytes for the same content."""

from __future__ import annotations

from kernel_compass.codec.canonical import compact, plain, reshaped
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget


def test_a_record_is_the_same_bytes_wherever_it_came_from():
    """Whether it was made here, or read from a document that left its defaults out."""
    made = StepAction(StepActionKind.PRODUCT, StepTarget("it"))
    read = reshaped({"kind": "product", "target": {"what": "it"}}, StepAction)
    assert read == made and compact(plain(read)) == compact(plain(made))
    several = reshaped({"a": [{"what": "it"}]}, dict[str, list[StepTarget]])
    assert compact(plain(several)) == compact(plain({"a": [StepTarget("it")]}))
