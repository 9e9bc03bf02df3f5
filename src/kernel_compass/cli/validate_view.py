"""What `validate` prints: a verdict a workload, as it comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from kernel_compass.api.validating import Validated, Validation
    from kernel_compass.validation.self_test import CheatResult


def view(quiet: bool) -> Callable[[Validated], None]:
    """Prints each verdict; nothing where it is quiet."""

    def show(found: Validated) -> None:
        if not quiet:
            typer.echo("\n".join(lines_of(found)))

    return show


def show_proof(quiet: bool) -> Callable[[CheatResult], None]:
    """Says once that the judge proves itself first."""
    said: list[bool] = []

    def show(_: CheatResult) -> None:
        if not said and not quiet:
            said.append(True)
            typer.echo("The judge proves itself on the built-in cheats first ...", err=True)

    return show


def lines_of(found: Validated) -> list[str]:
    """A verdict for people."""
    verdict = "passed" if found.reason is None else f"rejected: {found.reason.value}"
    lines = [f"{found.workload}: {verdict}", f"  {found.detail}"]
    errors = [
        f"{value:.3g} % off {name}"
        for value, name in (
            (found.fidelity_error_pct, "its own operands"),
            (found.format_error_pct, "full precision"),
        )
        if value is not None
    ]
    if errors:
        lines.append(f"  {', '.join(errors)}")
    for one in found.times:
        s = one.speedup
        lines.append(
            f"  {one.regime.value}: {s.estimate:.3f} times as fast as the baseline "
            f"({s.low:.3f} to {s.high:.3f}), {one.decision}; one process, a screen"
        )
    if found.untimed is not None:
        lines.append(f"  not timed: {found.untimed}")
    for report in found.sanitized:
        words = "clean" if report.is_clean else f"{report.errors} errors"
        sees = " (shared memory alone)" if report.tool == "racecheck" else ""
        lines += [f"  {report.tool}{sees}: {words}", *(f"    {one}" for one in report.findings)]
    lines += [f"  not looked at: {one}" for one in found.unseen]
    return lines + [f"  note: {one}" for one in found.notes]


def document_of(found: Validation) -> dict[str, Any]:
    """The same as JSON."""
    return {"passed": found.passed, **asdict(found)}
