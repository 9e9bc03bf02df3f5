"""Measured launches that a user hands over: a JSON file of workloads and times."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kernel_compass.cli.options import regime_named
from kernel_compass.cli.shapes import workload_of
from kernel_compass.codec.json_reading import file_bytes, read_json
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import MeasuredLaunch, Precision

EXAMPLE = (
    '[{"workload": "bmm 128x1x128x512", "precision": "w8a16", "regime": "cold", "time_us": 4.1}]'
)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    workload: str
    precision: str
    regime: str
    time_us: float


def probes_in(path: Path) -> tuple[MeasuredLaunch, ...]:
    """The launches in a file.

    Raises:
        UsageError: it cannot be read, or a row is no measured launch.
    """
    try:
        rows = read_json(file_bytes(path, regular=False), list[_Row])
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--probes {path}: {reason}.", f"Write {EXAMPLE}.") from None
    return tuple(_launch(row, f"--probes {path}, row {i + 1}") for i, row in enumerate(rows))


def _launch(row: _Row, place: str) -> MeasuredLaunch:
    try:
        op, _, shape = row.workload.strip().partition(" ")
        workload, regime = workload_of(op, shape or None), regime_named(row.regime)
    except UsageError as error:
        raise UsageError(f"{place}: {error.found}", error.remedy) from None
    if regime is Regime.IN_SITU:
        raise UsageError(f"{place}: in_situ is warm or cold, and nobody knows which.")
    if row.precision not in list(Precision):
        known = ", ".join(Precision)
        raise UsageError(f"{place}: there is no precision {row.precision!r}.", f"Name {known}.")
    if not 0 < row.time_us < 1e9:
        raise UsageError(f"{place}: {row.time_us} us is no time.", "A positive number is needed.")
    return MeasuredLaunch(workload, Precision(row.precision), regime, row.time_us)
