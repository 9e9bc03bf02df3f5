"""The published layouts of quantized weights, to codes and scales: nothing is rounded again.

All store a linear layer's weight; K is its inputs, N its outputs. Low bits of a word come first.

- compressed-tensors pack-quantized: `weight_packed (N, K/8)` int32 holds code + 8; `weight_scale`
  `(N, G)`; `weight_zero_point (N/8, G)`, packed along N, + 8; `weight_shape` is N, K.
- int-quantized, float-quantized: `weight (N, K)` int8 or e4m3; `weight_scale` `(N, 1)`, `(1)`, or a
  block.
- GPTQ: `qweight (K/8, N)`, `scales (G, N)`, `qzeros (G, N/8)`, which are 1 less in version 1;
  `g_idx (K)` is the group of each row.
- AWQ gemm: `qweight (K, N/8)`, `qzeros (G, N/8)`, a word's nibbles columns 0 2 4 6 1 3 5 7;
  `scales (G, N)`.
- DeepSeek fp8: `weight (N, K)` e4m3, times `weight_scale_inv (N/128, K/128)`, rounded up.

Sources: the compressed-tensors, GPTQModel, AutoAWQ packages and DeepSeek-V3's repository.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.checkpoint_schemes import Method, Scheme, unsupported
from kernel_compass.kernels.checkpoint_tensors import (
    Tensors,
    expect_no_zeros,
    index_of,
    refuse_damaged,
    scales_of,
    shape_of,
    take,
    words_of,
)
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import BLOCK, Code, NumberFormat

AWQ_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word's eight nibbles the columns 0 ... 7 lie."""


@dataclass(frozen=True)
class LoadedWeight:
    """A weight as its checkpoint has it."""

    weight: QuantizedWeight
    """One head: `(1, K, N)`."""
    order: Any | None = None
    """`(K,)` int64 where rows were moved so that groups are contiguous (`desc_act`): the product is
    `a[:, order] @ W`. `None` = rows are in the layer's own order."""


def read_layer(tensors: Tensors, scheme: Scheme, layer: str, permuted: bool) -> LoadedWeight:
    """The weight of a layer.

    Args:
        tensors: those of the layer.
        scheme: what the configuration says of them.
        layer: its name, for messages.
        permuted: whether rows may be moved where groups are scattered along K.

    Raises:
        UsageError: tensors are missing or do not fit each other; scattered groups not allowed for.
    """
    if scheme.method is Method.GPTQ:
        return _gptq(tensors, scheme, layer, permuted)
    if scheme.method is Method.AWQ:
        return LoadedWeight(_awq(tensors, scheme, layer))
    if "weight_packed" in tensors:
        return _packed(tensors, scheme, layer, permuted)
    return LoadedWeight(_eight_bits(tensors, scheme, layer))


def unpack(words: Any, bits: int) -> Any:
    """`(R, W)` int32 to `(R, W * 32 / bits)` uint8, low bits first."""
    torch = torch_library()
    # flattened first: a single word a row may keep strides that bytes cannot have
    bytes_ = words.reshape(-1).view(torch.uint8).reshape(words.shape[0], -1)
    if bits == 8:
        return bytes_
    return torch.stack((bytes_ & 15, bytes_ >> 4), -1).reshape(words.shape[0], -1)


def _gptq(tensors: Tensors, scheme: Scheme, layer: str, permuted: bool) -> LoadedWeight:
    _check_bits(scheme, layer)
    words, scales = words_of(tensors, "qweight", layer), scales_of(tensors, "scales", layer)
    zero_words = words_of(tensors, "qzeros", layer)
    per_word = 32 // scheme.bits
    reduction, columns = words.shape[0] * per_word, words.shape[1]
    index = index_of(tensors, "g_idx", layer)
    if index is not None:
        reduction = len(index)
    groups = _groups(scheme, reduction)
    _expect(layer, "qweight", words, (-(-reduction // per_word), columns))
    _expect(layer, "scales", scales, (groups, columns))
    _expect(layer, "qzeros", zero_words, (groups, -(-columns // per_word)))
    codes = unpack(words.t(), scheme.bits)[:, :reduction].t()
    zeros = unpack(zero_words, scheme.bits)[:, :columns]
    if scheme.zero_offset and bool((zeros == 2**scheme.bits - 1).any()):
        raise UsageError(
            f"A zero point of {layer} is stored as {2**scheme.bits - 1} in GPTQ's version 1, which "
            "libraries read as 0 or as one more than a code can be.",
            "Save the checkpoint as checkpoint_format gptq_v2.",
        )
    return _integers(codes, scales, zeros + scheme.zero_offset, scheme, layer, index, permuted)


def _awq(tensors: Tensors, scheme: Scheme, layer: str) -> QuantizedWeight:
    words, scales = words_of(tensors, "qweight", layer), scales_of(tensors, "scales", layer)
    reduction, columns = words.shape[0], words.shape[1] * 8
    groups = _groups(scheme, reduction)
    _expect(layer, "scales", scales, (groups, columns))
    zero_words = words_of(tensors, "qzeros", layer)
    _expect(layer, "qzeros", zero_words, (groups, columns // 8))
    codes, zeros = (_awq_order(unpack(packed, 4)) for packed in (words, zero_words))
    return _integers(codes, scales, zeros, scheme, layer, None, False).weight


def _awq_order(nibbles: Any) -> Any:
    return nibbles.reshape(nibbles.shape[0], -1, 8)[..., AWQ_PLACES].reshape(nibbles.shape)


def _packed(tensors: Tensors, scheme: Scheme, layer: str, permuted: bool) -> LoadedWeight:
    _check_bits(scheme, layer)
    words, scales = (
        words_of(tensors, "weight_packed", layer),
        scales_of(tensors, "weight_scale", layer),
    )
    columns, reduction = shape_of(tensors, layer)
    groups = _groups(scheme, reduction)
    _expect(layer, "weight_packed", words, (columns, -(-reduction * scheme.bits // 32)))
    codes = unpack(words, scheme.bits)[:, :reduction].t()
    zeros = None
    if scheme.symmetric:
        expect_no_zeros(tensors, layer)
    else:
        zero_words = words_of(tensors, "weight_zero_point", layer)
        _expect(layer, "weight_zero_point", zero_words, (-(-columns * scheme.bits // 32), groups))
        zeros = unpack(zero_words.t(), scheme.bits)[:, :columns]
    index = index_of(tensors, "weight_g_idx", layer)
    if index is not None and bool((index < 0).all()):
        index = None  # the library's mark of an index that was never used
    scales = _a_column(scales, columns, groups, layer)
    return _integers(codes, scales, zeros, scheme, layer, index, permuted)


def _eight_bits(tensors: Tensors, scheme: Scheme, layer: str) -> QuantizedWeight:
    torch = torch_library()
    codes = take(tensors, "weight", layer)
    kind = Code.FP8 if scheme.floating else Code.INT8
    dtype = torch.float8_e4m3fn if scheme.floating else torch.int8
    if codes.dtype != dtype or codes.ndim != 2:
        raise unsupported(f"{layer}.weight is {codes.dtype} {tuple(codes.shape)}, not {dtype}.")
    refuse_damaged(f"{layer}.weight", codes)
    zeros = tensors.get("weight_zero_point")
    if zeros is not None and bool((zeros != 0).any()):
        raise unsupported(f"{layer} has 8-bit weights with zero points.")
    columns, reduction = codes.shape
    name = "weight_scale_inv" if scheme.method is Method.FP8 else "weight_scale"
    scales = scales_of(tensors, name, layer)
    if not scheme.block:
        if scheme.group is not None:
            raise unsupported(f"{layer} has 8-bit weights in groups of {scheme.group}.")
        scales = _a_column(scales, columns, 1, layer)
        activation = scheme.activation or Code.BF16
        number_format = NumberFormat(kind, activation)
    else:
        _expect(layer, name, scales, (-(-columns // BLOCK), -(-reduction // BLOCK)))
        scales = scales.t()
        number_format = NumberFormat(kind, kind, BLOCK, block=True)
    return QuantizedWeight(number_format, codes.t()[None], scales.contiguous()[None])


def _integers(
    codes: Any,
    scales: Any,
    zeros: Any | None,
    scheme: Scheme,
    layer: str,
    index: Any | None,
    permuted: bool,
) -> LoadedWeight:
    """Unsigned codes `(K, N)`, scales and zero points `(G, N)` to a weight."""
    torch = torch_library()
    middle = 2 ** (scheme.bits - 1)
    if zeros is not None and bool((zeros == middle).all()):
        zeros = None  # symmetric, whatever the configuration calls it
    group = scheme.group if scheme.group is not None and scheme.group < len(codes) else None
    codes, order = _in_order(codes, index, group, layer, permuted)
    scales = scales.contiguous()[None]
    if scheme.bits == 4:
        number_format = NumberFormat(Code.INT4, group=group, zero_points=zeros is not None)
        zeros = None if zeros is None else zeros.contiguous()[None]
        weight = QuantizedWeight(number_format, codes[None], scales, zeros)
        return LoadedWeight(weight, order)
    if group is not None or zeros is not None:
        raise unsupported(f"{layer} has 8-bit weights with groups or zero points.")
    signed = (codes ^ 128).view(torch.int8)  # a flipped top bit is 128 less
    number_format = NumberFormat(Code.INT8, scheme.activation or Code.BF16)
    return LoadedWeight(QuantizedWeight(number_format, signed[None], scales), order)


def _in_order(
    codes: Any, index: Any | None, group: int | None, layer: str, permuted: bool
) -> tuple[Any, Any | None]:
    torch = torch_library()
    if index is None:
        return codes, None
    reduction = len(codes)
    group = group or reduction
    _expect(layer, "g_idx", index, (reduction,))
    contiguous = torch.arange(reduction, device=index.device) // group
    if bool((index == contiguous).all()):
        return codes, None
    order = torch.argsort(index, stable=True)
    if not bool((index[order] == contiguous).all()):
        raise UsageError(
            f"The groups of {layer} (g_idx) are not of {group} rows each.",
            "Check that config.json and the tensors are of the same checkpoint.",
        )
    if not permuted:
        raise UsageError(
            f"The groups of {layer} are scattered along K (desc_act).",
            "Read it with permuted=True, and give the product a[:, order].",
        )
    return codes[order], order


def _a_column(scales: Any, columns: int, groups: int, layer: str) -> Any:
    """`weight_scale` of `(N, G)`, `(N)`, or one for all, as `(G, N)`."""
    if scales.numel() == 1 and groups == 1:
        return scales.reshape(1, 1).expand(groups, columns)
    if scales.ndim == 1:
        scales = scales.unsqueeze(1)
    _expect(layer, "weight_scale", scales, (columns, groups))
    return scales.t()


def _check_bits(scheme: Scheme, layer: str) -> None:
    if scheme.bits not in (4, 8) or scheme.floating:
        kind = "floating" if scheme.floating else "integer"
        raise unsupported(f"{layer} has packed {kind} weights of {scheme.bits} bits.")


def _groups(scheme: Scheme, reduction: int) -> int:
    return 1 if scheme.group is None else -(-reduction // scheme.group)


def _expect(layer: str, name: str, tensor: Any, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise UsageError(
            f"{layer}.{name} is {tuple(tensor.shape)}; the rest of the layer needs {shape}.",
            "Check that config.json and the tensors are of the same checkpoint.",
        )
