"""What `doctor` found, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from kernel_compass.records.request import Check, CheckStatus
from kernel_compass.report.phrases import plain

SCHEMA = "kernel-compass/doctor/1"
_MARKS = {CheckStatus.OK: ("ok", "32"), CheckStatus.WARNING: ("warning", "33")}
_MISSING = ("missing", "31")


def checks_text(checks: Sequence[Check], width: int, color: bool) -> str:
    """One paragraph a part: how it stands, what its lack costs, how to get it."""
    from textwrap import fill

    room = max((len(check.name) for check in checks), default=0)
    lines = []
    for check in checks:
        mark, ansi = _MARKS.get(check.status, _MISSING)
        head = f"{mark:<7}  {check.name.ljust(room)}  "
        indent = " " * len(head)
        body = fill(head + plain(check.found), max(width, 60), subsequent_indent=indent)
        if color:
            body = f"\x1b[{ansi}m{mark}\x1b[0m{body[len(mark) :]}"
        lines.append(body)
        for word, text in (("cost", check.cost), ("next", check.remedy)):
            if text and check.status is not CheckStatus.OK:
                hang = f"{indent}{' ' * (len(word) + 2)}"
                start = f"{indent}{word}: "
                lines.append(fill(start + plain(text), max(width, 60), subsequent_indent=hang))
    return "\n".join(lines) + "\n"


def checks_json(checks: Sequence[Check]) -> str:
    """The same as a JSON object (schema `kernel-compass/doctor/1`)."""
    document = {"schema": SCHEMA, "checks": [asdict(check) for check in checks]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
