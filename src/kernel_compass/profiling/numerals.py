"""Number cells of any locale: which character is the decimal one is learnt from the file.

ncu formats numbers by the locale of its own process: `52576`, `52,576`, `52.576` and `52 576`
are the same number in C, en_US, de_DE and fr_FR, while `52.576` in C is another one.
"""

from __future__ import annotations

import math
import re

from kernel_compass.errors import AmbiguousCapture

MISSING = math.nan
"""What a cell without a value reads as."""

MISSING_TEXTS = frozenset(
    [
        "",
        "n/a",
        "N/A",
        "(!) n/a",
        "(!) nan",
        "no data",
        "nan",
        "-nan",
        "nan(ind)",
        "-nan(ind)",
        "NaN",
        "inf",
        "-inf",
        "+inf",
        "-",
    ]
)

_SPACES = "[ \u00a0\u202f\u2009'\u2019]"
_POINT = re.compile(
    rf"[+-]?(?:[1-9]\d{{0,2}}(?:(?:,\d{{3}})+|(?:{_SPACES}\d{{3}})+)|\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?"
)
_COMMA = re.compile(
    rf"[+-]?(?:[1-9]\d{{0,2}}(?:(?:\.\d{{3}})+|(?:{_SPACES}\d{{3}})+)|\d*)(?:,\d*)?(?:[eE][+-]?\d+)?"
)
_USUAL = {
    ".": re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?", re.ASCII),
    ",": re.compile(r"-?(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d+)?", re.ASCII),
}
"""What nearly all cells look like that `float` does not read."""

GROUPED_POINT = _USUAL["."]
"""Numbers with commas between thousands, for callers in a hurry once the point is decimal."""

_EITHER = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_GROUPS = re.compile(f"{_SPACES}")
_LONGEST = 64


class NotANumber(ValueError):
    """The cell holds text."""


class OtherConvention(Exception):
    """The file turned out to use the other decimal character; `decimal` is that one."""

    def __init__(self, decimal: str) -> None:
        super().__init__(decimal)
        self.decimal = decimal


class Numerals:
    """Reads the number cells of one file and learns its convention on the way.

    Values are read with a decimal point until the file proves otherwise; then `OtherConvention`
    asks for another pass. `finish` must be called after the last cell.

    Args:
        decimal: `.` or `,` where it is known, else `None`.
    """

    def __init__(self, decimal: str | None = None) -> None:
        self.decimal = decimal
        self._ungrouped = False
        self._points: str | None = None
        self._commas: str | None = None
        self._comma_is_group = self._point_is_group = False

    def read(self, text: str, integral: bool = False, time: bool = False) -> float:
        """The number in a cell; `MISSING` for `n/a`, an empty cell, nan and infinities.

        Args:
            text: the cell.
            integral: whether the quantity is a count, so that a fraction is impossible.
            time: whether it is a time in nanoseconds.

        Raises:
            NotANumber: the cell holds text.
            OtherConvention: read the file again with that decimal character.
            AmbiguousCapture: it contradicts the numbers before.
        """
        if self.decimal is None:
            return self._read_unsettled(text, integral, time)
        if self.decimal == "." and "," not in text:
            try:
                value = float(text)
            except ValueError:
                pass
            else:
                return value if value - value == 0.0 else MISSING
        if len(text) <= _LONGEST and _USUAL[self.decimal].fullmatch(text):
            if self.decimal == ".":
                return float(text.replace(",", ""))
            return float(text.replace(".", "").replace(",", "."))
        return self._read_settled(text)

    def finish(self) -> None:
        """Decide what the cells together left open.

        Raises:
            OtherConvention: read the file again with that decimal character.
            AmbiguousCapture: the values differ between two readings and nothing decides.
        """
        if self.decimal is not None or not (self._points or self._commas):
            return
        point = self._comma_is_group or (bool(self._points) and self._ungrouped)
        comma = self._point_is_group
        if point == comma or (point and self._points and self._commas and not self._ungrouped):
            raise self._undecided()
        if comma:
            raise OtherConvention(",")

    def _undecided(self) -> AmbiguousCapture:
        text = str(self._points or self._commas)
        whole = re.sub(r"[.,]", "", text)
        fraction = text.replace(",", ".")
        return AmbiguousCapture(
            f"{text!r} may be {whole} or {fraction}: nothing in the file says whether its "
            "separator groups thousands or begins the decimals.",
            "Export again with LC_ALL=C: LC_ALL=C ncu --import X.ncu-rep --csv --print-units base",
        )

    def _read_settled(self, text: str) -> float:
        mine, other = (_POINT, _COMMA) if self.decimal == "." else (_COMMA, _POINT)
        number = _number_text(text)
        if number is None:
            return MISSING
        if mine.fullmatch(number):
            return _to_float(number, self.decimal or ".")
        if other.fullmatch(number):
            raise AmbiguousCapture(
                f"{text!r} contradicts the other numbers of the file, whose decimal character "
                f"is {self.decimal!r}.",
                "Keep one report, exported under one locale, in a file.",
            )
        raise NotANumber(text)

    def _read_unsettled(self, text: str, integral: bool, time: bool) -> float:
        if text.isdecimal() and text.isascii() and len(text) < _LONGEST:
            self._ungrouped = self._ungrouped or len(text) > 3
            return float(text)
        number = _number_text(text)
        if number is None:
            return MISSING
        if _EITHER.fullmatch(number):
            self._note_either(number, integral, time)
            return _to_float(number, ".")
        if _POINT.fullmatch(number):
            if "." in number or "," in number:
                self.decimal = "."
            return _to_float(number, ".")
        if _COMMA.fullmatch(number):
            raise OtherConvention(",")
        raise NotANumber(text)

    def _note_either(self, number: str, integral: bool, time: bool) -> None:
        # A time in ns with a comma and three digits is grouped; a point may also come from a
        # tool that rescaled the times, so it decides nothing.
        if "." in number:
            self._points = self._points or number
            self._point_is_group = self._point_is_group or integral
        else:
            self._commas = self._commas or number
            self._comma_is_group = self._comma_is_group or integral or time


def _number_text(text: str) -> str | None:
    """The part of a cell that may be a number, `None` where the cell has no value."""
    if text.endswith(")") and " (" in text and not text.startswith("("):
        text = text[: text.index(" (")]  # instance values follow in parentheses
    text = text.strip()
    if text in MISSING_TEXTS:
        return None
    if len(text) > _LONGEST or not any(c.isdigit() for c in text) or not _latin(text):
        raise NotANumber(text)
    return text


def _latin(text: str) -> bool:
    return all(not c.isdigit() or c in "0123456789" for c in text)


def _to_float(number: str, decimal: str) -> float:
    group = "," if decimal == "." else "."
    plain = _GROUPS.sub("", number.replace(group, "")).replace(decimal, ".")
    try:
        value = float(plain)
    except ValueError:
        raise NotANumber(number) from None
    return value if value - value == 0.0 else MISSING
