"""Kernels checked, then timed side by side: implementations x formats x regimes of each workload.

Within a workload all kernels are replayed the same number of launches, the baseline first, so that
every ratio is one of a single run. An output that fails the check against float64 has no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

from kernel_compass.api.kernel_cells import (
    Bench,
    Cell,
    Packed,
    Ready,
    checked_launch,
    launches,
    one_line,
)
from kernel_compass.api.kernel_plans import planned_row, refused_row
from kernel_compass.api.kernel_requests import BF16, Item, TableRequest
from kernel_compass.kernels.providers.registry import why_none
from kernel_compass.measurement.subject import ROTATION_BYTES, Subject
from kernel_compass.measurement.timing import measure
from kernel_compass.records.contracts import Implementation, Tensor
from kernel_compass.records.kernel_table import BASELINE, KernelRow, RowStatus
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

FAILURES = (Exception, SystemExit)
"""What a library may raise: it costs its row, not the table. An interrupt stops the table."""
ROOMY = 4
"""So many rotations fit beside those that are kept for other batch sizes, or these are given up."""


@dataclass(frozen=True)
class TableProgress:
    """How far a table is."""

    part: str
    done: int
    """Cells."""
    total: int


OnProgress: TypeAlias = Callable[[TableProgress], None]


class TableRun:
    """One table being measured.

    Args:
        request: what is measured.
        bench: on what.
        known: rows that were measured earlier; those of the same key, GPU, driver and versions
            are not measured again.
        tell: told before each cell.
    """

    def __init__(
        self,
        request: TableRequest,
        bench: Bench,
        known: Iterable[KernelRow] = (),
        tell: OnProgress | None = None,
    ) -> None:
        self._request = request
        self._bench = bench
        self._tell = tell or (lambda _: None)
        self._environment = bench.device.environment()
        self._known = {(r.key, r.machine): r for r in known if r.status is RowStatus.MEASURED}
        self._packed: dict[tuple[str, str], Packed] = {}
        self._done = 0
        for name in request.implementations or ():
            bench.choices.implementation(name)
        self.kept: list[KernelRow] = []
        """Rows of the request that were measured earlier."""
        self.refused: list[KernelRow] = []
        """Rows of implementations that were named and cannot do what was asked, and of formats that
        none can."""
        self._cells = {item: self._wanted(item) for item in request.items}

    @property
    def total(self) -> int:
        """Cells there are to measure."""
        return sum(map(len, self._cells.values()))

    def rows(self) -> Iterator[KernelRow]:
        """The rows, each as soon as it is there; measured earlier ones are not among them.

        Raises:
            MeasurementError: the GPU cannot be used any more.
        """
        yield from self.refused
        shape = None
        for item, cells in self._cells.items():
            w = item.workload
            if (w.op, w.heads, w.reduction, w.columns) != shape:
                shape = (w.op, w.heads, w.reduction, w.columns)
                self._packed.clear()
                self._bench.device.release()
            baseline: dict[Regime, float] = {}
            for cell in cells:
                self._tell(TableProgress(cell.text, self._done, self.total))
                for row in self._measured(cell, baseline):
                    if cell.implementation.name == BASELINE and row.time_us is not None:
                        baseline.setdefault(row.regime, row.time_us)
                    yield row
                self._done += 1

    def marked(
        self, mark: Callable[[str], AbstractContextManager[object]], launches: int
    ) -> tuple[list[str], list[str]]:
        """Launch each kernel a few times in a range of its own; nothing is timed.

        Returns:
            The ranges' names, and the kernels that failed with the reason.
        """
        named: list[str] = []
        failed: list[str] = []
        for cell in (cell for cells in self._cells.values() for cell in cells):
            self._tell(TableProgress(cell.text, len(named) + len(failed), self.total))
            try:
                ready = self._ready(cell)
                if ready.fault is not None:
                    failed.append(f"{cell.text}: {ready.fault}")
                    continue
                call = ready.subject().first_call
                with mark(cell.range_name):
                    for _ in range(launches):
                        self._bench.device.run(call)
                named.append(cell.range_name)
            except FAILURES as error:
                failed.append(f"{cell.text}: {one_line(error)}")
                self._check_alive()
        return named, failed

    def _wanted(self, item: Item) -> list[Cell]:
        """Cells to measure; the baseline comes with any other, for their ratios."""
        cells = [c for c in self._offered(item) if self._missing(c)]
        others = [c for c in cells if c.implementation.name != BASELINE or c.format != BF16]
        if not cells:
            return []
        usable, _ = self._choices(item.workload, BF16)
        baseline = [Cell(item, BF16, one) for one in usable if one.name == BASELINE]
        return [*baseline, *others]

    def _offered(self, item: Item) -> Iterator[Cell]:
        named = self._request.implementations
        formats = self._request.formats
        for number_format in formats if BF16 in formats else (BF16, *formats):
            usable, refused = self._choices(item.workload, number_format)
            for one in usable:
                asked = number_format in formats and (named is None or one.name in named)
                if asked or (number_format == BF16 and one.name == BASELINE):
                    yield Cell(item, number_format, one)
            if number_format not in formats:
                continue
            for name in named or ():
                if name in refused:
                    self._refuse(item, number_format, name, refused[name])
            if named is None and not usable:
                self._refuse(item, number_format, None, why_none(refused))

    def _choices(
        self, workload: Workload, number_format: NumberFormat
    ) -> tuple[Sequence[Implementation], Mapping[str, str]]:
        target = self._bench.operands.target
        return self._bench.choices.implementations_for(workload, number_format, target)

    def _refuse(self, item: Item, number_format: NumberFormat, name: str | None, why: str) -> None:
        for regime in self._request.regimes:
            self.refused.append(refused_row(self._planned(item, number_format, regime), name, why))

    def _missing(self, cell: Cell) -> bool:
        rows = [self._blank(cell, regime) for regime in self._request.regimes]
        found = [self._known.get((row.key, row.machine)) for row in rows]
        if None not in found:
            self.kept += [row for row in found if row is not None]
        return None in found

    def _planned(self, item: Item, number_format: NumberFormat, regime: Regime) -> KernelRow:
        bench = self._bench
        row = planned_row(self._request, item, number_format, regime, bench.calibration, None)
        return replace(row, environment=self._environment)

    def _blank(self, cell: Cell, regime: Regime) -> KernelRow:
        row = self._planned(cell.item, cell.format, regime)
        return replace(row, implementation=cell.implementation.name)

    def _measured(self, cell: Cell, baseline: Mapping[Regime, float]) -> Iterator[KernelRow]:
        try:
            ready = self._ready(cell)
        except FAILURES as error:
            yield from self._failed(cell, error)
            return
        for regime in self._request.regimes:
            row = replace(
                self._blank(cell, regime),
                fidelity_error_pct=ready.fidelity_error_pct,
                format_error_pct=ready.format_error_pct,
            )
            if ready.fault is not None:
                yield replace(row, status=RowStatus.FAILED, reason=ready.fault)
                continue
            try:
                yield self._timed(row, ready, baseline)
            except FAILURES as error:
                yield replace(row, status=RowStatus.FAILED, reason=one_line(error))
                self._check_alive()

    def _timed(self, row: KernelRow, ready: Ready, baseline: Mapping[Regime, float]) -> KernelRow:
        bench, subject, note = self._bench, ready.subject(), ready.prepared.note
        n = launches(self._request, row.workload, row.regime, bench)
        if row.regime is Regime.COLD:
            sets = self._rotated(ready.packed, subject)[:n]
            subject = replace(subject, streamed=sets[0], sets=tuple(sets[1:]))
        options = replace(bench.options, launches=n)
        found = measure(subject, bench.device, row.regime, options=options)
        floor = bench.floor_of(row.workload, row.format, row.regime, n) if bench.floor_of else None
        first = row.implementation == BASELINE and row.format == BF16
        return replace(
            row,
            status=RowStatus.MEASURED,
            time_us=found.median_us,
            spread_pct=found.spread_pct,
            launches=n,
            floor_us=floor[0] if floor else None,
            floor_basis=floor[1] if floor else None,
            baseline_us=found.median_us if first else baseline.get(row.regime),
            warnings=(*found.warnings, *([note] if note else ())),
            environment=found.environment,
        )

    def _rotated(self, packed: Packed, subject: Subject) -> tuple[tuple[Tensor, ...], ...]:
        """Copies of the streamed operands; where memory is short, other kernels' are given up."""
        bench = self._bench
        if bench.device.free_bytes() < ROOMY * (bench.options.rotation_bytes or ROTATION_BYTES):
            for other in self._packed.values():
                if other is not packed:
                    other.drop()
            bench.device.release()
        return packed.rotated(subject, bench)

    def _failed(self, cell: Cell, error: BaseException) -> Iterator[KernelRow]:
        for regime in self._request.regimes:
            row = self._blank(cell, regime)
            yield replace(row, status=RowStatus.FAILED, reason=one_line(error))
        self._check_alive()

    def _ready(self, cell: Cell) -> Ready:
        case = self._bench.operands.case(cell.item.workload, cell.format, self._request.layout)
        prepared = cell.implementation.prepare(case.weight, cell.item.workload)
        place = (cell.format.name, cell.implementation.name)
        packed = self._packed.get(place)
        if packed is None or not packed.holds(prepared, self._bench.operands):
            packed = self._packed[place] = Packed(prepared.streamed)
        return checked_launch(cell.implementation, prepared, packed, case, self._bench.device)

    def _check_alive(self) -> None:
        """Whether the GPU still works: after an illegal access it does nothing any more."""
        self._bench.device.run(lambda: None)
