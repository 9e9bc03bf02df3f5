"""The few numbers that tell one kernel from another, and what to believe before any probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from kernel_compass.records.workload import Precision


@dataclass(frozen=True)
class Term:
    """A positive number known up to a factor: log-normal."""

    value: float
    """The median."""
    log_sd: float
    """Standard deviation of its natural logarithm; 0 = fixed, never fitted."""


FIXED_ONE = Term(1.0, 0.0)


@dataclass(frozen=True)
class Evidence:
    """What probes say beyond the terms: the joint posterior in the form a prediction needs.

    With n probes and p terms: `features` (n, 2), `jacobian` (n, p), `prior_sd` (p),
    `weights` (n) = C^-1 (log time - log model), `solve` (n, n) = (J S J' + C)^-1.
    """

    features: tuple[tuple[float, ...], ...]
    jacobian: tuple[tuple[float, ...], ...]
    prior_sd: tuple[float, ...]
    weights: tuple[float, ...]
    solve: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class KernelTerms:
    """How one kernel falls short of the machine's ceilings."""

    launches: Term
    """Fixed cost in units of the machine's t0: 2 where a second launch goes with it."""
    l2_efficiency: Term
    """Share of the L2 bandwidth reached by bytes that L2 serves."""
    dram_efficiency: Term
    math_efficiency: Term
    """Share of the dense peak, on the arithmetic as tiled (tokens rounded up)."""
    capacity_ratio: Term
    """The working set at which half of it misses, in units of c_eff."""
    dequantization_efficiency: Term = FIXED_ONE
    activation_pass_efficiency: Term | None = None
    """Share of the DRAM bandwidth reached by a separate launch that quantizes the activations;
    `None` = there is no such launch."""
    weight_format: str = "int4"
    """What is converted where weights are: a key of `Ceilings.dequantization_tweights_s`."""
    shape_choice_sd: float = 0.04
    """How much one weight shape may differ from its neighbours at every token count, in the
    logarithm of time: large for a library, which picks another kernel for another shape."""
    tile_tokens: tuple[int, ...] = (16,)
    """Rows of the tiles the kernel has, ascending: tokens are computed in whole tiles of the
    smallest that holds them, else of the largest."""
    blocks_per_sm: int = 1
    """Blocks that run on an SM at once; matters only where a launch's blocks are given."""
    evidence: Evidence | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The terms that are fitted, in the order of every vector here."""
        return tuple(name for name, term in self.items() if term.log_sd > 0)

    def items(self) -> list[tuple[str, Term]]:
        """All terms that this kernel has."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return [(name, term) for name, term in pairs if isinstance(term, Term)]


_CAPACITY = Term(1.0, 0.15)

_WEIGHT_ONLY = KernelTerms(
    launches=Term(1.2, 0.3),
    l2_efficiency=Term(0.5, 0.7),
    dram_efficiency=Term(0.75, 0.4),
    math_efficiency=Term(0.2, 1.0),
    capacity_ratio=_CAPACITY,
    dequantization_efficiency=Term(1.0, 0.7),
    weight_format="int8",
)
"""Weights are converted before the product; the two formats are believed alike but for that."""

PRIOR: Mapping[Precision, KernelTerms] = {
    Precision.BF16: KernelTerms(
        launches=Term(1.0, 0.3),
        l2_efficiency=Term(0.75, 0.4),
        dram_efficiency=Term(0.85, 0.2),
        math_efficiency=Term(0.6, 0.7),
        capacity_ratio=_CAPACITY,
        shape_choice_sd=0.12,
    ),
    Precision.W8A8: KernelTerms(
        launches=Term(2.0, 0.3),
        l2_efficiency=Term(0.5, 0.7),
        dram_efficiency=Term(0.75, 0.4),
        math_efficiency=Term(0.4, 1.0),
        capacity_ratio=_CAPACITY,
        activation_pass_efficiency=Term(0.4, 0.8),
    ),
    Precision.W8A16: _WEIGHT_ONLY,
    Precision.W4A16: replace(_WEIGHT_ONLY, weight_format="int4"),
}
"""A kernel never probed. A tuned library for bf16, so close to the ceilings; anything from a
hand-written to a tuned kernel for the others, so wide. Round numbers, the same for every GPU."""


def default_terms(precision: Precision) -> KernelTerms:
    """What to believe about a kernel of this precision before any probe."""
    return PRIOR[precision]
