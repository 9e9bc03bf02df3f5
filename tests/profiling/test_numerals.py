"""Number cells: conventions proved, inferred, refused."""

from __future__ import annotations

import math

import pytest

from kernel_compass.errors import AmbiguousCapture
from kernel_compass.profiling.numerals import MISSING_TEXTS, NotANumber, Numerals, OtherConvention


def read_all(*texts: str, integral: bool = False, time: bool = False) -> list[float]:
    """Read cells as a capture does: again from the start when the convention turns out."""
    numerals = Numerals()
    try:
        values = [numerals.read(text, integral, time) for text in texts]
        numerals.finish()
    except OtherConvention as other:
        numerals = Numerals(other.decimal)
        values = [numerals.read(text, integral, time) for text in texts]
        numerals.finish()
    return values


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["0", "16", "999"], [0, 16, 999]),
        (["30730", "52.58"], [30730, 52.58]),
        (["52.576", "88.39"], [52.576, 88.39]),
        (["52.576", "88,39"], [52576, 88.39]),
        (["52,576", "88.39"], [52576, 88.39]),
        (["52,576", "88,39"], [52.576, 88.39]),
        (["52.576", "30730"], [52.576, 30730]),  # no grouping, so the point is decimal
        (["52.576", "1.234.567"], [52576, 1234567]),
        (["52,576", "1,234,567"], [52576, 1234567]),
        (["4,640,292,148.51"], [4640292148.51]),
        (["4.640.292.148,51"], [4640292148.51]),
        (["30 730", "88,39"], [30730, 88.39]),
        (["30\u00a0730", "1\u202f234\u202f567", "88,39"], [30730, 1234567, 88.39]),
        (["0.123", "1.234"], [0.123, 1.234]),
        (["0,123", "1.234"], [0.123, 1234]),
        (["1234.567"], [1234.567]),
        (["52.576000"], [52.576]),
        (["-0.01", "100.39", "-1,234.5"], [-0.01, 100.39, -1234.5]),
        (["1.5e+09", "2e-3"], [1.5e9, 2e-3]),
        (["2,230 (100; 50)", "2.61 (0.10; 0.05)"], [2230, 2.61]),
        (["30 730", "12"], [30730, 12]),
    ],
)
def test_convention_is_learnt(texts: list[str], values: list[float]) -> None:
    assert read_all(*texts) == pytest.approx(values)
    assert read_all(*reversed(texts)) == pytest.approx(values[::-1])


@pytest.mark.parametrize(
    "texts", [["52.576"], ["52.576", "16", "999"], ["7,744", "16"], ["52.576", "1,234"]]
)
def test_undecided_is_refused(texts: list[str]) -> None:
    with pytest.raises(AmbiguousCapture, match="may be") as refusal:
        read_all(*texts)
    assert "LC_ALL=C" in refusal.value.remedy


@pytest.mark.parametrize(
    "texts", [["88.39", "88,39"], ["88,39", "88.39"], ["1.234.567", "0.17"], ["12,34", "1,234,567"]]
)
def test_contradiction_is_refused(texts: list[str]) -> None:
    with pytest.raises(AmbiguousCapture, match="contradicts"):
        read_all(*texts)


def test_counts_have_no_fractions() -> None:
    assert read_all("52.576", "16", integral=True) == [52576, 16]
    assert read_all("52,576", "16", integral=True) == [52576, 16]
    assert read_all("7,744", time=True) == [7744]
    with pytest.raises(AmbiguousCapture):
        read_all("52.576", "30730", integral=True)
    with pytest.raises(AmbiguousCapture):
        read_all("52.576", time=True)


@pytest.mark.parametrize("decimal", [None, ".", ","])
@pytest.mark.parametrize("text", sorted(MISSING_TEXTS))
def test_missing_is_never_zero(text: str, decimal: str | None) -> None:
    assert math.isnan(Numerals(decimal).read(text))


@pytest.mark.parametrize("decimal", [None, ".", ","])
@pytest.mark.parametrize(
    "text", ["PolicySpread", "all", "1.2.3", "12,34,5", "(1, 2)", "0x10", "1-2"]
)
def test_text_is_no_number(text: str, decimal: str | None) -> None:
    with pytest.raises(NotANumber):
        Numerals(decimal).read(text)


def test_an_overflow_is_missing() -> None:
    assert math.isnan(Numerals(".").read("1e999"))
    assert math.isnan(Numerals().read("1e999"))
