"""Which implementation computes a product on a GPU: what a dispatch table holds, and its rules.

A table is a set of entries, each contributed by one trial of one study. For one product, GPU and
set of tokens the best entry is in force and the others wait: so the order in which studies were
merged decides nothing, and taking a study out leaves what would be there without it. Changes to a
program's step stand beside the products, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from kernel_compass.records.comparison import Interval
from kernel_compass.records.environment import Environment
from kernel_compass.records.profile import Regime
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

if TYPE_CHECKING:
    from kernel_compass.records.step_action import StepEntry


@dataclass(frozen=True)
class TokenRange:
    """Numbers of tokens, both ends among them; one number where they are the same."""

    low: int
    high: int

    def __contains__(self, tokens: int) -> bool:
        return self.low <= tokens <= self.high

    @property
    def text(self) -> str:
        """`16` or `65-128`."""
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class WorkloadPattern:
    """A product whose weight is exactly of these sizes, for some numbers of tokens."""

    op: Op
    heads: int
    """H; 1 for `linear`."""
    reduction: int
    """K."""
    columns: int
    """N."""
    tokens: tuple[TokenRange, ...]
    """Ascending, apart from each other; at least one."""

    def covers(self, tokens: int) -> bool:
        """Whether the number of tokens is one of those."""
        return any(tokens in one for one in self.tokens)

    def workload(self, tokens: int) -> Workload:
        """The product with so many tokens."""
        return Workload(self.op, self.heads, tokens, self.reduction, self.columns)

    @property
    def text(self) -> str:
        """`bmm 128xMx128x512, M = 1, 16`; linear in the order M, N, K."""
        sizes = f"bmm {self.heads}xMx{self.reduction}x{self.columns}"
        if self.op is Op.LINEAR:
            sizes = f"linear Mx{self.columns}x{self.reduction}"
        return f"{sizes}, M = {', '.join(one.text for one in self.tokens)}"


def token_ranges(tokens: Iterable[int]) -> tuple[TokenRange, ...]:
    """Single numbers of tokens as a pattern has them."""
    return tuple(TokenRange(one, one) for one in sorted(set(tokens)))


@dataclass(frozen=True)
class GpuModel:
    """What an entry was measured on; another machine falls back."""

    name: str
    """As the driver calls it."""
    capability: str
    """`9.0`."""
    sm_count: int

    @property
    def text(self) -> str:
        """`NVIDIA H200 (9.0, 132 SMs)`."""
        return f"{self.name} ({self.capability}, {self.sm_count} SMs)"


@dataclass(frozen=True)
class RegimeWin:
    """A regime that was asked for, and the speedup shown in it."""

    regime: Regime
    speedup: Interval


@dataclass(frozen=True)
class DispatchEntry:
    """One accepted trial, as a rule for run time."""

    pattern: WorkloadPattern
    gpu: GpuModel
    wins: tuple[RegimeWin, ...]
    """One for every regime that was asked for: where the L2 stands, nobody knows at run time."""
    candidate: Candidate
    study: str
    trial: int
    trial_sha256: str | None = None
    """Of the trial's document in the study's ledger."""
    fidelity_error_pct: float | None = None
    format_error_pct: float | None = None
    added_bytes: int | None = None
    """Memory held beside the original weight."""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the implementation's files: `kernel_compass/kernels/decode.py`, ..."""

    @property
    def surely(self) -> float:
        """The lower bound of the speedup in the regime where it is least."""
        return min(win.speedup.low for win in self.wins)

    @property
    def place(self) -> tuple[str, str, tuple[TokenRange, ...]]:
        """What one entry alone may be in force for."""
        p = self.pattern
        return f"{p.op} {p.heads} {p.reduction} {p.columns}", self.gpu.text, p.tokens

    @property
    def reference(self) -> str:
        """`STUDY:TRIAL`."""
        return f"{self.study}:{self.trial}"


def better(one: DispatchEntry, other: DispatchEntry) -> bool:
    """Whether the first is the better one: surely faster; of two alike, the one named first."""
    return _rank(one) < _rank(other)


@dataclass(frozen=True)
class DispatchTable:
    """All contributions, those that are outdone too."""

    contributions: tuple[DispatchEntry, ...] = ()
    """In an order of their own (`ordered`), which does not depend on when they came."""
    environments: Mapping[str, Environment] = field(default_factory=dict)
    """Where each study measured, by its identifier."""
    step_contributions: tuple[StepEntry, ...] = ()
    """Changes to steps, those that are outdone too; in an order of their own."""

    @property
    def entries(self) -> tuple[DispatchEntry, ...]:
        """Those in force: the best for each place."""
        best: dict[object, DispatchEntry] = {}
        for entry in self.contributions:
            best.setdefault(entry.place, entry)
        return tuple(best.values())

    @property
    def steps(self) -> tuple[StepEntry, ...]:
        """Changes to steps in force: of one kind for one target of a program, the best."""
        best: dict[object, StepEntry] = {}
        for entry in self.step_contributions:
            best.setdefault(entry.place, entry)
        return tuple(best.values())

    @property
    def outdone(self) -> tuple[DispatchEntry, ...]:
        """Those that wait behind a better one."""
        in_force = set(map(id, self.entries))
        return tuple(one for one in self.contributions if id(one) not in in_force)

    @property
    def all_entries(self) -> tuple[DispatchEntry | StepEntry, ...]:
        """All contributions of both sorts."""
        return self.contributions + self.step_contributions

    @property
    def empty(self) -> bool:
        """Whether nothing is in it."""
        return not self.contributions and not self.step_contributions

    def merged(
        self,
        entries: Iterable[DispatchEntry],
        environments: Mapping[str, Environment],
        steps: Iterable[StepEntry] = (),
    ) -> DispatchTable:
        """The table with these as well; an entry of the same trial and place is replaced."""
        known = {(one.reference, one.place): one for one in self.contributions}
        known |= {(one.reference, one.place): one for one in entries}
        changes = {(one.reference, one.place): one for one in self.step_contributions}
        changes |= {(one.reference, one.place): one for one in steps}
        found = {**self.environments, **environments}
        return ordered(known.values(), found, changes.values())

    def without(self, study: str, trial: int | None = None) -> DispatchTable:
        """The table as it would be had this study, or this trial of it, added nothing."""
        kept = [one for one in self.contributions if not _is_of(one, study, trial)]
        steps = [one for one in self.step_contributions if not _is_of(one, study, trial)]
        return ordered(kept, self.environments, steps)

    def of(self, study: str, trial: int | None = None) -> tuple[DispatchEntry, ...]:
        """What a study, or one trial of it, contributed."""
        return tuple(one for one in self.contributions if _is_of(one, study, trial))

    def steps_of(self, study: str, trial: int | None = None) -> tuple[StepEntry, ...]:
        """Which changes to steps a study, or one trial of it, contributed."""
        return tuple(one for one in self.step_contributions if _is_of(one, study, trial))


def ordered(
    entries: Iterable[DispatchEntry],
    environments: Mapping[str, Environment],
    steps: Iterable[StepEntry] = (),
) -> DispatchTable:
    """A table of entries in its order, with the environments of their studies alone."""
    found = sorted(entries, key=lambda one: (_place_key(one), _rank(one)))
    changes = sorted(steps, key=lambda one: (one.place, -one.speedup.low, one.study, one.trial))
    studies = {one.study for one in found} | {one.study for one in changes}
    kept = {study: environments[study] for study in sorted(studies) if study in environments}
    return DispatchTable(tuple(found), kept, tuple(changes))


def token_objection(tokens: tuple[TokenRange, ...]) -> str | None:
    """Why these are no tokens of a pattern; `None` = they are."""
    if not tokens:
        return "it is for no number of tokens"
    for one in tokens:
        if not 1 <= one.low <= one.high:
            return f"tokens {one.low} to {one.high} are no range"
    if any(a.high >= b.low for a, b in pairwise(tokens)):
        return "its ranges of tokens are not ascending and apart"
    return None


def _is_of(entry: DispatchEntry | StepEntry, study: str, trial: int | None) -> bool:
    return entry.study == study and trial in (None, entry.trial)


def _rank(entry: DispatchEntry) -> tuple[float, str, int]:
    return -entry.surely, entry.study, entry.trial


def _place_key(entry: DispatchEntry) -> tuple[object, ...]:
    p, gpu = entry.pattern, entry.gpu
    tokens = tuple((one.low, one.high) for one in p.tokens)
    sizes = (p.op.value, p.heads, p.reduction, p.columns, tokens)
    return (*sizes, gpu.name, gpu.capability, gpu.sm_count)
