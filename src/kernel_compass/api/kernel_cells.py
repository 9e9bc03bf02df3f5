"""One kernel of a table: prepared, launched once, checked, and ready to be timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kernel_compass.analysis.format_traffic import stored_weight
from kernel_compass.api.kernel_operands import Case, Operands
from kernel_compass.api.kernel_plans import FloorOf
from kernel_compass.api.kernel_requests import BF16, Item, TableRequest
from kernel_compass.errors import KernelCompassError, shortened
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.subject import (
    COLD_L2_MULTIPLE,
    MOST_SETS,
    ROTATION_BYTES,
    Subject,
    rotation,
)
from kernel_compass.measurement.timing import TimingOptions
from kernel_compass.records.calibration import Calibration
from kernel_compass.records.contracts import Implementation, Prepared, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Workload

OPTIONS = TimingOptions(samples=21, settle_us=5_000.0, check=False)
"""The inputs are this module's own and the output is checked, so timing need not look again."""
SHORTEST_LAUNCH_US = 1.5
"""No kernel of these is faster: what n rests on before anything was timed."""


class Choices(Protocol):
    """Who can compute what: `kernels.providers.registry`, or a test's stand-in."""

    def implementation(self, name: str) -> Implementation:
        """The implementation of this name."""

    def implementations_for(
        self, workload: Workload, number_format: NumberFormat, target: Any
    ) -> tuple[Sequence[Implementation], Mapping[str, str]]:
        """Who can, and the reasons of those who cannot."""


@dataclass(frozen=True)
class Bench:
    """What kernels are measured on and with."""

    device: TimingDevice
    operands: Operands
    choices: Choices
    calibration: Calibration | None = None
    """What residency rests on."""
    floor_of: FloorOf | None = None
    options: TimingOptions = OPTIONS


@dataclass(frozen=True)
class Cell:
    """One kernel of a table, in all regimes."""

    item: Item
    format: NumberFormat
    implementation: Implementation

    @property
    def text(self) -> str:
        """`q_absorb 128x16x128x512 w4a16_gk own_decode`."""
        w = self.item.workload
        what = f"{w.name} {w.shape_text}" if w.name else w.shape_text
        return f"{what} {self.format.name} {self.implementation.name}"

    @property
    def range_name(self) -> str:
        """The same without what ncu's `--nvtx-include` gives a meaning: `q_absorb.bmm_...`."""
        return self.text.replace(" ", ".")


class Packed:
    """Streamed operands of one implementation, with their rotated copies: shared by batch sizes."""

    def __init__(self, streamed: tuple[Tensor, ...]) -> None:
        self.streamed = streamed
        self._sets: tuple[tuple[Tensor, ...], ...] = ()

    def holds(self, prepared: Prepared, operands: Operands) -> bool:
        """Whether the weight was packed into the same bits for another batch size."""
        pairs = zip(self.streamed, prepared.streamed, strict=False)
        same_count = len(self.streamed) == len(prepared.streamed)
        return same_count and all(operands.same(one, other) for one, other in pairs)

    def rotated(self, subject: Subject, bench: Bench) -> tuple[tuple[Tensor, ...], ...]:
        """Sets that together exceed L2 by far; copied once."""
        if not self._sets:
            own = replace(subject, streamed=self.streamed, sets=())
            self._sets = rotation(own, bench.device, bench.options.rotation_bytes)
        return self._sets

    def drop(self) -> None:
        """Give the copies up."""
        self._sets = ()


@dataclass(frozen=True)
class Ready:
    """A kernel that was run once and checked."""

    implementation: Implementation
    prepared: Prepared
    packed: Packed
    a: Tensor
    output: Tensor
    fault: str | None
    fidelity_error_pct: float | None
    format_error_pct: float | None

    def subject(self) -> Subject:
        """Its launch, for timing."""
        count = len(self.packed.streamed)

        def run(*operands: Tensor) -> object:
            *streamed, a, out = operands
            return self.implementation.run(self.prepared, streamed[:count], a, out)

        return Subject(run, self.packed.streamed, (self.a,), (self.output,))


def checked_launch(
    implementation: Implementation,
    prepared: Prepared,
    packed: Packed,
    case: Case,
    device: TimingDevice,
) -> Ready:
    """Launch a kernel once into a poisoned output, and check that."""
    out = case.new_output()
    device.run(lambda: implementation.run(prepared, packed.streamed, case.a, out))
    found = case.check(out, implementation.name)
    return Ready(
        implementation,
        prepared,
        packed,
        case.a,
        out,
        found.fault,
        found.fidelity_error_pct,
        found.format_error_pct,
    )


def launches(request: TableRequest, workload: Workload, regime: Regime, bench: Bench) -> int:
    """n, the same for every format of a workload: no rotated set comes twice within n launches.

    A power of two, as the numbers of sets are; long enough for a replay that can be timed.
    """
    options = bench.options
    n = _power_of_two(options.replay_us / SHORTEST_LAUNCH_US)
    if regime is Regime.COLD:
        least = COLD_L2_MULTIPLE * bench.device.l2_bytes
        total = max(least, options.rotation_bytes or ROTATION_BYTES)
        smallest = min(stored_weight(workload, one).codes for one in (BF16, *request.formats))
        n = max(_power_of_two(total / smallest), 2)
        enough = options.replay_us / SHORTEST_LAUNCH_US
        n = max(n, min(_power_of_two(enough), MOST_SETS))
    return min(n, MOST_SETS)


def one_line(error: BaseException) -> str:
    """An error in a line that fits into a table, and into UTF-8: file names may not."""
    known = isinstance(error, KernelCompassError)
    lines = (
        str(error.found if isinstance(error, KernelCompassError) else error).strip().splitlines()
    )
    first = lines[0].encode("utf-8", "backslashreplace").decode() if lines else ""
    return shortened(first if known else f"{type(error).__name__}: {first}".removesuffix(": "))


def _power_of_two(value: float) -> int:
    return 1 << max(0, (max(int(-(-value // 1)), 1) - 1).bit_length())
