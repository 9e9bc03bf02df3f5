"""A checkpoint's `kv_b_proj`, cut into the weights of MLA's two products, head by head.

The layer is `W (H * (P + V), L)`: of each head first P = `qk_nope_head_dim` rows, then V =
`v_head_dim`; L = `kv_lora_rank` (DeepSeek-V2's paper, section 2.1; its repository's `kv_b_proj`).
`q_absorb` multiplies the first by their rows, `v_up` the others by their columns:

    q_absorb[h, p, l] = W[h * (P + V) + p, l]          (H, K = P, N = L)
    v_up[h, l, v]     = W[h * (P + V) + P + v, l]      (H, K = L, N = V)

Codes and scales stay what they are: views, and nothing is rounded again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.checkpoint_layouts import LoadedWeight
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import BLOCK

_ANEW = (
    "Cut a 16-bit weight and quantize what comes out: the checkpoint's original, or "
    "references.dequantize of this one, cast to bfloat16."
)


def reconstruction_weights(
    loaded: LoadedWeight, *, heads: int, nope: int, value: int
) -> tuple[QuantizedWeight, QuantizedWeight]:
    """Both weights, `q_absorb` and `v_up`.

    Args:
        loaded: `kv_b_proj` from `Checkpoint.load`.
        heads: H, of what was loaded.
        nope: P, `qk_nope_head_dim` of the model's configuration.
        value: V, `v_head_dim`.

    Raises:
        UsageError: sizes that are not the layer's; scales that one of the weights cannot keep.
    """
    sizes = {"heads": heads, "nope": nope, "value": value}
    return q_absorb_weight(loaded, **sizes), v_up_weight(loaded, **sizes)


def q_absorb_weight(loaded: LoadedWeight, *, heads: int, nope: int, value: int) -> QuantizedWeight:
    """`(H, K = P, N = L)`: of 16 bits, in blocks of fp8, or with one scale for all P rows of a head
    (a whole tensor's). Its format then has a scale a column.

    Args:
        loaded: as for `reconstruction_weights`, and all else.
        heads: H.
        nope: P.
        value: V.

    Raises:
        UsageError: sizes that are not the layer's; blocks that span two heads; scales or zero
            points of single outputs, which lie along K here.
    """
    weight = _checked(loaded, heads, nope, value)
    codes = _by_head(weight.codes, heads).permute(1, 2, 0)[:, :nope]
    if weight.scales is None:
        return replace(weight, codes=codes)
    if weight.format.block:
        scales = _by_head(weight.scales, heads).permute(1, 2, 0)[:, : nope // BLOCK]
        return replace(weight, codes=codes, scales=scales.contiguous())
    zeros = None
    if weight.zeros is not None:
        zeros = _a_column(weight, weight.zeros, "zero points", heads, nope)
    scales = _a_column(weight, weight.scales, "scales", heads, nope)
    return QuantizedWeight(replace(weight.format, group=None), codes, scales, zeros)


def v_up_weight(loaded: LoadedWeight, *, heads: int, nope: int, value: int) -> QuantizedWeight:
    """`(H, K = L, N = V)`, in the format that was loaded.

    Args:
        loaded: as for `reconstruction_weights`, and all else.
        heads: H.
        nope: P.
        value: V.

    Raises:
        UsageError: sizes that are not the layer's; blocks that span two heads.
    """
    weight = _checked(loaded, heads, nope, value)
    first = nope // BLOCK if weight.format.block else nope

    def cut(tensor: Any, start: int) -> Any:
        return _by_head(tensor, heads).permute(1, 0, 2)[:, :, start:]

    return replace(
        weight,
        codes=cut(weight.codes, nope),
        scales=None if weight.scales is None else cut(weight.scales, first).contiguous(),
        zeros=None if weight.zeros is None else cut(weight.zeros, nope).contiguous(),
    )


def _checked(loaded: LoadedWeight, heads: int, nope: int, value: int) -> QuantizedWeight:
    weight = loaded.weight
    if loaded.order is not None:
        raise UsageError(
            "The rows of kv_b_proj were moved (desc_act): its inputs are L, which both products of "
            "MLA meet in the model's order.",
            "Use a checkpoint without desc_act, or one of 16 bits.",
        )
    wanted = heads * (nope + value)
    if min(heads, nope, value) < 1 or weight.heads != 1 or weight.columns != wanted:
        raise UsageError(
            f"kv_b_proj has {weight.columns} outputs; {heads} heads of {nope} + {value} are "
            f"{wanted}.",
            "Pass num_attention_heads (of what was loaded), qk_nope_head_dim and v_head_dim of "
            "config.json.",
        )
    if weight.format.block and (nope % BLOCK or value % BLOCK):
        raise UsageError(
            f"A block of {BLOCK} outputs of kv_b_proj spans two parts of heads of {nope} + "
            f"{value}: neither can keep its scale.",
            _ANEW,
        )
    return weight


def _by_head(tensor: Any, heads: int) -> Any:
    """`(1, A, H * B)` as the view `(A, H, B)`."""
    return tensor[0].unflatten(1, (heads, -1))


def _a_column(weight: QuantizedWeight, values: Any, what: str, heads: int, nope: int) -> Any:
    """Scales or zero points `(1, G, H * (P + V))` as `(H, 1, L)`, where a head has one a group."""
    own = _by_head(values, heads)[:, :, :nope]
    one = own[:, :, :1]
    if not bool((own == one).all()):
        raise UsageError(
            f"q_absorb cannot keep the {what} of kv_b_proj in {weight.format.name}: there is one "
            "an output, and the layer's outputs are q_absorb's K.",
            f"v_up keeps them (v_up_weight). {_ANEW}",
        )
    group = weight.format.group or weight.reduction
    along = one.permute(1, 2, 0).repeat_interleave(group, 2)
    return along[:, :, : weight.reduction].contiguous()
