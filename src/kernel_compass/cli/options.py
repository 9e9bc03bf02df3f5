"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.report.formats import Format

LabelOption = Annotated[
    str | None, typer.Option("--label", metavar="TEXT", help="Title of the report.")
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Form of the report. Default: that of --output's suffix "
        "(.json, .md, .csv), else terminal.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to this file, replacing it whole; missing folders are created. "
        "Without it the report, and nothing else, goes to standard output.",
    ),
]

CalibrationOption = Annotated[
    str | None,
    typer.Option(
        "--calibration",
        metavar="NAME|FILE|none",
        help="What headroom rests on. Default: this machine's calibration, or the shipped one, of "
        "the GPU that the capture names.",
        show_default=False,
    ),
]

REGIMES = (Regime.WARM, Regime.COLD, Regime.IN_SITU)
"""The regimes a user can name."""


def regime_named(text: str, known: Sequence[Regime] = REGIMES) -> Regime:
    """The regime of this name, `in-situ` included.

    Args:
        text: what was written.
        known: those that the command takes: what a message names.

    Raises:
        UsageError: no such regime.
    """
    name = text.strip().lower().replace("-", "_")
    for regime in REGIMES:
        if regime.value == name:
            return regime
    names = ", ".join(regime.value for regime in known)
    raise UsageError(f"There is no regime {text!r}.", f"Name one of {names}.")


def regimes_named(texts: Sequence[str], known: Sequence[Regime] = REGIMES) -> tuple[Regime, ...]:
    """The regimes of these names, each once, in the order given."""
    return tuple(dict.fromkeys(regime_named(text, known) for text in texts))
