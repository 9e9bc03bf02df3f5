"""The weight products of a model's decode step on one GPU of a tensor-parallel group.

Sharding is Megatron's, as vLLM and SGLang do it: column-parallel into attention and MLP,
row-parallel out of them, heads split for MLA's absorbed products, what compresses replicated;
routed experts are split like the MLP (tensor, not expert parallelism). Attention itself reads no
weights and is not listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_compass.analysis.model_configs import (
    MODELS,
    Attention,
    Experts,
    LatentAttention,
    ModelConfig,
)
from kernel_compass.errors import UsageError
from kernel_compass.records.workload import Op, Workload

MAX_TP = 1024
REPLICATED = "replicated"


@dataclass(frozen=True)
class Projection:
    """One product of the model, as one GPU launches it."""

    workload: Workload
    """Its name is the projection's."""
    layers: int
    """Layers that launch it, once each."""
    sharded: str
    """The dimension that is split: `columns`, `reduction`, `heads`, or `replicated`."""
    assumption: str | None = None
    """What its shape takes for granted."""


def model_named(name: str, offered: Sequence[str] | None = None) -> ModelConfig:
    """The model of this name.

    Args:
        name: as the published configuration is called.
        offered: the names that a message lists; `None` = all.

    Raises:
        UsageError: none is; names the known ones.
    """
    found = MODELS.get(name.strip().lower())
    if found is None:
        known = ", ".join(MODELS if offered is None else offered)
        raise UsageError(f"There is no model {name!r}.", f"Known models: {known}.")
    return found


def projections(model: ModelConfig, tokens: int, tp: int = 1) -> tuple[Projection, ...]:
    """Every weight product of one step, in the order it runs.

    Args:
        model: the dimensions.
        tokens: rows of the activations, M.
        tp: GPUs the model is split over.

    Raises:
        UsageError: `tp` divides a split dimension unevenly; names the sizes that fit.
    """
    if tokens < 1:
        raise UsageError(f"{tokens} tokens is no batch.", "Name 1 or more.")
    check_tp(model, tp)
    parts = (
        _latent(model, model.attention, tokens, tp)
        if isinstance(model.attention, LatentAttention)
        else _grouped(model, model.attention, tokens, tp)
    )
    return (
        *parts,
        *_mlp(model, tokens, tp),
        *_experts(model, tokens, tp),
        _head(model, tokens, tp),
    )


def check_tp(model: ModelConfig, tp: int) -> None:
    """Whether a model can be split over so many GPUs.

    Raises:
        UsageError: it cannot; names what does not divide, and the sizes that fit.
    """
    if not 1 <= tp <= MAX_TP:
        raise UsageError(f"--tp {tp} is out of range.", f"Name 1 to {MAX_TP}.")
    uneven = _uneven(model, tp)
    if uneven:
        fitting = [n for n in range(1, 65) if not _uneven(model, n)]
        raise UsageError(
            f"{model.name} cannot be split over {tp} GPUs: {', '.join(uneven)}.",
            f"These divide it: --tp {', '.join(map(str, fitting))}.",
        )


def _uneven(model: ModelConfig, tp: int) -> list[str]:
    sizes = {"heads": model.attention.heads, "vocabulary": model.vocabulary}
    if model.intermediate is not None:
        sizes["intermediate size"] = model.intermediate
    if model.experts is not None:
        sizes["expert intermediate size"] = model.experts.intermediate
    found = [f"{size} {name}" for name, size in sizes.items() if size % tp]
    if isinstance(model.attention, Attention):
        heads = model.attention.kv_heads
        if heads % tp and tp % heads:
            found.append(f"{heads} key-value heads")
    return found


def _linear(name: str, tokens: int, columns: int, reduction: int) -> Workload:
    return Workload(Op.LINEAR, 1, tokens, reduction, columns, name)


def _grouped(model: ModelConfig, a: Attention, tokens: int, tp: int) -> Iterator[Projection]:
    kv_heads = max(a.kv_heads // tp, 1)
    qkv = (a.heads // tp + 2 * kv_heads) * a.head_dim
    copied = f"key-value heads are copied to {tp} GPUs" if tp > a.kv_heads else None
    layers = model.layers
    yield Projection(
        _linear("qkv_proj", tokens, qkv, model.hidden), layers, _split("columns", tp), copied
    )
    out = _linear("o_proj", tokens, model.hidden, a.heads * a.head_dim // tp)
    yield Projection(out, layers, _split("reduction", tp))


def _latent(model: ModelConfig, a: LatentAttention, tokens: int, tp: int) -> Iterator[Projection]:
    heads, layers = a.heads // tp, model.layers
    query = heads * (a.nope_dim + a.rope_dim)
    latent = a.kv_rank + a.rope_dim
    if a.q_rank is None:
        into = _linear("q_proj", tokens, query, model.hidden)
        yield Projection(into, layers, _split("columns", tp))
        down = _linear("kv_a_proj", tokens, latent, model.hidden)
        yield Projection(down, layers, REPLICATED)
    else:
        down = _linear("qkv_a_proj", tokens, a.q_rank + latent, model.hidden)
        yield Projection(down, layers, REPLICATED)
        up = _linear("q_b_proj", tokens, query, a.q_rank)
        yield Projection(up, layers, _split("columns", tp))
    absorb = Workload(Op.BMM, heads, tokens, a.nope_dim, a.kv_rank, "q_absorb")
    yield Projection(absorb, layers, _split("heads", tp))
    value = Workload(Op.BMM, heads, tokens, a.kv_rank, a.v_dim, "v_up")
    yield Projection(value, layers, _split("heads", tp))
    out = _linear("o_proj", tokens, model.hidden, heads * a.v_dim)
    yield Projection(out, layers, _split("reduction", tp))


def _mlp(model: ModelConfig, tokens: int, tp: int) -> Iterator[Projection]:
    dense = model.experts.dense_layers if model.experts else model.layers
    if model.intermediate is not None and dense > 0:
        yield from _gated(model, model.intermediate, tokens, tp, dense, "")
    if model.experts is not None and model.experts.shared > 0:
        inner = model.experts.intermediate * model.experts.shared
        yield from _gated(model, inner, tokens, tp, model.layers - dense, "shared_")


def _gated(
    model: ModelConfig, inner: int, tokens: int, tp: int, layers: int, prefix: str
) -> Iterator[Projection]:
    up = _linear(f"{prefix}gate_up_proj", tokens, 2 * inner // tp, model.hidden)
    yield Projection(up, layers, _split("columns", tp))
    down = _linear(f"{prefix}down_proj", tokens, model.hidden, inner // tp)
    yield Projection(down, layers, _split("reduction", tp))


def _experts(model: ModelConfig, tokens: int, tp: int) -> Iterator[Projection]:
    """The routed experts that a step touches, as one batched product: an expert is a head."""
    experts = model.experts
    if experts is None:
        return
    hit, rows = routed_load(experts, tokens)
    layers = model.layers - experts.dense_layers
    yield Projection(_linear("router", tokens, experts.routed, model.hidden), layers, REPLICATED)
    words = (
        f"tokens choose {experts.active} of {experts.routed} experts evenly: "
        f"{hit:,} are hit, {rows:,} {'row' if rows == 1 else 'rows'} each"
    )
    inner = experts.intermediate // tp
    up = Workload(Op.BMM, hit, rows, model.hidden, 2 * inner, "experts_gate_up")
    yield Projection(up, layers, _split("columns", tp), words)
    down = Workload(Op.BMM, hit, rows, inner, model.hidden, "experts_down")
    yield Projection(down, layers, _split("reduction", tp), words)


def routed_load(experts: Experts, tokens: int) -> tuple[int, int]:
    """Experts hit, and rows of each, when every token chooses evenly and independently.

    An expert is missed by a token with probability 1 - active / routed, so E [1 - (1 - a / E)^T]
    are expected to be hit; the rows are spread over them and rounded up.
    """
    missed = (1.0 - experts.active / experts.routed) ** tokens
    hit = max(round(experts.routed * (1.0 - missed)), min(experts.active, experts.routed))
    return hit, max(-(-tokens * experts.active // hit), 1)


def _head(model: ModelConfig, tokens: int, tp: int) -> Projection:
    head = _linear("lm_head", tokens, model.vocabulary // tp, model.hidden)
    return Projection(head, 1, _split("columns", tp))


def _split(dimension: str, tp: int) -> str:
    return dimension if tp > 1 else REPLICATED
