"""What a kernel table is asked for: workloads of a model or a sweep, formats, regimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_compass.analysis.model_configs import MODELS, LatentAttention
from kernel_compass.analysis.models import check_tp, model_named, projections
from kernel_compass.errors import UsageError
from kernel_compass.records.kernel_table import Layout
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.workload import Op, Workload

RECONSTRUCTION = ("q_absorb", "v_up")
"""MLA's products with the per-head halves of `kv_b_proj`."""
MEASURED_REGIMES = (Regime.WARM, Regime.COLD)
BF16 = NumberFormat.parse("bf16")


@dataclass(frozen=True)
class Item:
    """A workload of a table."""

    workload: Workload
    model: str | None = None
    layers: int | None = None


@dataclass(frozen=True)
class TableRequest:
    """Every item in every format and regime, by every implementation named."""

    items: tuple[Item, ...]
    formats: tuple[NumberFormat, ...]
    regimes: tuple[Regime, ...] = MEASURED_REGIMES
    implementations: tuple[str, ...] | None = None
    """By name; `None` = all that can. The baseline, `cublas_bf16`, is always there."""
    layout: Layout = Layout.SERVING

    def __post_init__(self) -> None:
        wrong = [regime.value for regime in self.regimes if regime not in MEASURED_REGIMES]
        if wrong:
            raise UsageError(
                f"A single kernel has no regime {wrong[0]}.",
                "Name warm or cold; in_situ needs the program around it (api.measure).",
            )
        named = [one for one in self.formats if not isinstance(one, NumberFormat)]
        if named:
            raise UsageError(
                f"The format {named[0]!r} is no NumberFormat.",
                f"Pass NumberFormat.parse({named[0]!r}) (kernel_compass.records.number_format).",
            )
        if not (self.items and self.formats and self.regimes):
            raise UsageError("Nothing to measure was named.", "Name a format and a regime.")


def mla_items(model_name: str, tokens: Sequence[int], tp: int = 1) -> tuple[Item, ...]:
    """Both reconstruction products of a model for each batch size, on one of `tp` GPUs.

    Raises:
        UsageError: no such model, one without MLA, or it cannot be split like that.
    """
    with_mla = [m.name for m in MODELS.values() if isinstance(m.attention, LatentAttention)]
    model = model_named(model_name, with_mla)
    if not isinstance(model.attention, LatentAttention):
        raise UsageError(
            f"{model.name} has no latent attention, so nothing is reconstructed.",
            f"Models that have: {', '.join(with_mla)}.",
        )
    check_tp(model, tp)
    found = [
        Item(projection.workload, model.name, projection.layers)
        for batch in tokens
        for projection in projections(model, batch, tp)
        if projection.workload.name in RECONSTRUCTION
    ]
    return tuple(sorted(found, key=lambda item: RECONSTRUCTION.index(item.workload.name or "")))


def sweep_items(
    heads: int, reduction: int, columns: Sequence[int], tokens: Sequence[int]
) -> tuple[Item, ...]:
    """A bmm of each width and batch size: weights from under L2's capacity to over it."""
    return tuple(
        Item(Workload(Op.BMM, heads, batch, reduction, width))
        for width in columns
        for batch in tokens
    )
