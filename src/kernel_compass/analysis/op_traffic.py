"""What an operator must move and compute at least, from the shapes of its inputs.

Every operand once, every result once; what is read twice through a broadcast counts once. FLOP
are two for a multiply-add; element-wise operators count one for each result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from kernel_compass.records.trace import OpCall
from kernel_compass.records.workload import Traffic

ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8),
        **dict.fromkeys(("float", "int"), 4),
        **dict.fromkeys(("c10::BFloat16", "c10::Half", "short int", "short"), 2),
        **dict.fromkeys(("bool", "unsigned char", "signed char", "char", "byte"), 1),
        **dict.fromkeys(
            (
                *("c10::Float8_e4m3fn", "c10::Float8_e5m2"),
                *("c10::Float8_e4m3fnuz", "c10::Float8_e5m2fnuz", "c10::Float8_e8m0fnu"),
            ),
            1,
        ),
    }
)
"""Bytes of an element by the type's name in `Input type`."""

ELEMENTWISE = frozenset(
    """add sub mul div pow neg exp log sqrt rsqrt reciprocal abs tanh sigmoid relu gelu silu cos sin
    clamp maximum minimum where fill zero""".split()  # noqa: SIM905
)
"""Operators whose result has the broadcast shape of their inputs."""
_SOFTMAX = ("_softmax", "_log_softmax")
SAME_SHAPE = frozenset((*_SOFTMAX, "native_layer_norm", "_fused_rms_norm", "rms_norm"))
"""Operators over rows whose result has the shape of their first input."""
MOST = 1 << 63
"""Bytes and operations over this are of no tensors that ever were."""


@dataclass(frozen=True)
class _Attention:
    """Where an attention operator keeps what decides its work."""

    causal_at: int
    heads_third: bool = False
    """Whether sizes are [B, M, H, D] and not [B, H, M, D]."""
    bias_at: int | None = None
    unknown_if: tuple[int, ...] = ()
    """Inputs (offsets, windows, block tables) with which the shapes do not tell the work."""


_ATTENTION: Mapping[str, _Attention] = MappingProxyType(
    {
        "_scaled_dot_product_flash_attention": _Attention(4),
        "_scaled_dot_product_efficient_attention": _Attention(6, bias_at=3),
        "_scaled_dot_product_cudnn_attention": _Attention(6, bias_at=3),
        "_flash_attention_forward": _Attention(8, True, None, (3, 4, 11, 12, 13, 15)),
        "_efficient_attention_forward": _Attention(9, True, 3, (4, 5, 12, 13)),
        "_cudnn_attention_forward": _Attention(10, False, 3, (4, 5, 13, 14)),
    }
)


def traffic_of(op: OpCall) -> Traffic | None:
    """The compulsory traffic of a known operator, `None` where the op or its shapes are unknown, or
    no machine holds what they say."""
    name = op.name.removeprefix("aten::")
    try:
        found = _known(op, name)
    except (LookupError, ValueError):  # shapes that were not recorded or do not fit
        return None
    return None if found is None or max(found.total_bytes, found.flops) > MOST else found


def _known(op: OpCall, name: str) -> Traffic | None:
    if name in _PRODUCTS:
        return _product(op, *_PRODUCTS[name])
    if name in _ATTENTION:
        return _attention(op, _ATTENTION[name])
    if name == "copy_":
        return _plain(_bytes(op, 1), _bytes(op, 0), 0)
    if name in SAME_SHAPE:
        numel = math.prod(_dims(op, 0))
        widened = name in _SOFTMAX and len(op.concrete) > 2 and op.concrete[2] == "True"
        return _plain(_given_bytes(op), (4 if widened else _size(op, 0)) * numel, numel)
    return _elementwise(op) if name.removesuffix("_") in ELEMENTWISE else None


def _product(op: OpCall, left: int, right: int, weight_transposed: bool) -> Traffic:
    """`[..., M, K] @ [..., K, N]`, or `[..., M, K] @ [N, K].T`."""
    a, b = _dims(op, left), _dims(op, right)
    if len(a) < 2 or len(b) < 2:
        raise ValueError("vectors")
    columns, reduction = (b[-2], b[-1]) if weight_transposed else (b[-1], b[-2])
    if a[-1] != reduction or (len(b) > 2 and a[:-2] != b[:-2]):
        raise ValueError("sizes do not fit")
    outputs = math.prod(a[:-1]) * columns
    # A scaled product of 8-bit operands writes 16 bits unless it is told otherwise.
    output_size = max(_size(op, left), 2)
    bias_at = 0 if left else 2 if weight_transposed and len(op.types) > 2 else None
    unused = bool(left) and len(op.concrete) > 3 and op.concrete[3] in ("0", "0.", "0.0")  # beta
    bias = 0 if bias_at is None or unused or not op.types[bias_at] else _bytes(op, bias_at)
    return Traffic(
        weight_bytes=_bytes(op, right),
        activation_bytes=_bytes(op, left) + bias,
        output_bytes=outputs * output_size,
        flops=2 * outputs * reduction,
        math=_math(op.types[right]),
    )


_PRODUCTS: Mapping[str, tuple[int, int, bool]] = MappingProxyType(
    {
        "mm": (0, 1, False),
        "bmm": (0, 1, False),
        "addmm": (1, 2, False),
        "baddbmm": (1, 2, False),
        "_scaled_mm": (0, 1, False),
        "linear": (0, 1, True),
    }
)
"""Indices of the two operands, whether the second is stored [N, K]."""


def _math(type_name: str) -> str:
    """The peak that bounds a product of this type: a key of `Calibration.peak_tflops`."""
    if "Float8" in type_name:
        return "fp8"
    if type_name in ("signed char", "char"):
        return "int8"
    return "bf16" if _size_of(type_name) == 2 else "fp32"


def _attention(op: OpCall, where: _Attention) -> Traffic:
    """Scaled dot-product attention; a causal one needs about half of the pairs.

    Where the trace does not say whether it is causal, the smaller work is taken: a floor must not
    be too high.
    """
    if any(map(partial(_is_given, op), where.unknown_if)):
        raise ValueError("variable lengths or windows: the shapes do not tell the pairs")
    query, key = _dims(op, 0), _dims(op, 1)
    if len(query) != 4 or len(key) != 4:
        raise ValueError("not four sizes")
    heads_at, rows_at = (2, 1) if where.heads_third else (1, 2)
    rows, columns = query[rows_at], key[rows_at]
    flag = op.concrete[where.causal_at] if where.causal_at < len(op.concrete) else ""
    pairs = rows * columns
    if flag not in ("False", "0") and columns >= rows > 1:
        pairs -= rows * (rows - 1) // 2
    value_dim = _dims(op, 2)[-1]
    bias_at = where.bias_at
    bias = _bytes(op, bias_at) if bias_at is not None and _is_given(op, bias_at) else 0
    return Traffic(
        weight_bytes=_bytes(op, 1) + _bytes(op, 2),
        activation_bytes=_bytes(op, 0) + bias,
        output_bytes=math.prod(query[:3]) * value_dim * _size(op, 0),
        flops=2 * query[0] * query[heads_at] * pairs * (query[3] + value_dim),
        math=_math(op.types[0]),
    )


def _is_given(op: OpCall, at: int) -> bool:
    """Whether an optional input was passed, as a tensor or as a scalar."""
    if at >= len(op.types) or not op.types[at]:
        return False
    return bool(op.dims[at]) or bool(at < len(op.concrete) and op.concrete[at])


def _elementwise(op: OpCall) -> Traffic:
    shapes = [_dims(op, at) for at in _tensors(op)]
    if not shapes:
        raise ValueError("no tensors")
    output = _broadcast(shapes)
    # A scalar of a wider type does not widen the result.
    sized = [at for at in _tensors(op) if op.dims[at]] or _tensors(op)
    in_place = op.name.endswith("_")
    size = _size(op, 0) if in_place else max(_size(op, at) for at in sized)
    fills = op.name.removeprefix("aten::") in ("fill_", "zero_")
    return _plain(0 if fills else _given_bytes(op), size * math.prod(output), math.prod(output))


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            raise ValueError("sizes do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def _plain(read: int, written: int, flops: int) -> Traffic:
    return Traffic(0, read, written, flops, math="fp32")


def _given_bytes(op: OpCall) -> int:
    return sum(_bytes(op, at) for at in _tensors(op))


def _tensors(op: OpCall) -> list[int]:
    return [at for at, name in enumerate(op.types) if name in ELEMENT_BYTES]


def _dims(op: OpCall, at: int) -> tuple[int, ...]:
    dims = op.dims[at]
    if dims is None or any(size < 0 for size in dims):
        raise ValueError("no tensor")
    return dims


def _size(op: OpCall, at: int) -> int:
    return _size_of(op.types[at])


def _size_of(type_name: str) -> int:
    return ELEMENT_BYTES[type_name]


def _bytes(op: OpCall, at: int) -> int:
    """Distinct bytes of an input: a size with stride 0 is one element repeated."""
    dims = _dims(op, at)
    strides = op.strides[at] if at < len(op.strides) else None
    if strides is not None and len(strides) == len(dims):
        dims = tuple(size for size, stride in zip(dims, strides, strict=True) if stride or size < 1)
    return math.prod(dims) * _size(op, at)
