"""The JSON output: the contract `kernel-compass/advice/1`, written by the codec."""

from __future__ import annotations

from kernel_compass.codec.advice_json import encode
from kernel_compass.records.advice import Advice
from kernel_compass.report.formats import Style


def write(advice: Advice, _style: Style) -> str:
    """One JSON object."""
    return encode(advice).decode("utf-8")
