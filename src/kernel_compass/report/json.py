"""The JSON output: the contract `kernel-compass/diagnosis/1`, written by the codec."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.codec.diagnosis_json import encode, encode_list
from kernel_compass.records.report import Report
from kernel_compass.report.formats import Style


def write(reports: Sequence[Report], style: Style) -> str:
    """One report as an object, several as an array of objects."""
    data = encode_list(reports) if style.as_list else encode(reports[0])
    return data.decode("utf-8")
