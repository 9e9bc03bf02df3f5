"""A layer's tensors as they must be before their layout is read: type, dimensions, no damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.checkpoint_schemes import unsupported
from kernel_compass.kernels.library import torch_library

Tensors = Mapping[str, Any]
"""A layer's tensors by the last part of their names."""


def take(tensors: Tensors, name: str, layer: str) -> Any:
    """The tensor of that name.

    Raises:
        UsageError: the layer has none.
    """
    if name not in tensors:
        raise UsageError(
            f"{layer} has no tensor {name}; it has " + ", ".join(sorted(tensors)) + ".",
            "Check that config.json and the tensors are of the same checkpoint.",
        )
    return tensors[name]


def words_of(tensors: Tensors, name: str, layer: str) -> Any:
    """Packed codes: a matrix of int32; in other types, words would be read as other codes.

    Raises:
        UsageError: it is missing, or something else.
    """
    words = take(tensors, name, layer)
    if words.dtype != torch_library().int32 or words.ndim != 2 or not words.numel():
        raise _not_as_published(layer, name, words, "a matrix of int32")
    return words


def scales_of(tensors: Tensors, name: str, layer: str) -> Any:
    """Scales in float32, bfloat16 or float16, all finite; e8m0 becomes float32.

    Raises:
        UsageError: it is missing, or something else.
    """
    torch = torch_library()
    scales = take(tensors, name, layer)
    if scales.dtype == getattr(torch, "float8_e8m0fnu", None):  # since PyTorch 2.7
        scales = scales.to(torch.float32)  # powers of two are exact in it
    if scales.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        # float64 would be rounded; bytes may be exponents
        raise _not_as_published(layer, name, scales, "float32, bfloat16, float16 or e8m0")
    refuse_damaged(f"{layer}.{name}", scales)
    return scales


def index_of(tensors: Tensors, name: str, layer: str) -> Any | None:
    """The group of each row of K; `None` = absent or empty, groups are contiguous.

    Raises:
        UsageError: it is something else.
    """
    torch = torch_library()
    index = tensors.get(name)
    if index is None or not index.numel():
        return None
    if index.dtype not in (torch.int32, torch.int64) or index.ndim != 1:
        raise _not_as_published(layer, name, index, "a row of int32")
    return index


def shape_of(tensors: Tensors, layer: str) -> tuple[int, int]:
    """`weight_shape`: N and K.

    Raises:
        UsageError: it is missing, or something else.
    """
    torch = torch_library()
    shape = take(tensors, "weight_shape", layer)
    if shape.dtype not in (torch.int32, torch.int64) or tuple(shape.shape) != (2,):
        raise _not_as_published(layer, "weight_shape", shape, "two integers, N and K")
    columns, reduction = (int(n) for n in shape)
    return columns, reduction


def expect_no_zeros(tensors: Tensors, layer: str) -> None:
    """No zero points, or only 0, which symmetric weights were saved with at times.

    Raises:
        UsageError: there are others.
    """
    zeros = tensors.get("weight_zero_point")
    if zeros is not None and bool((zeros != 0).any()):
        raise UsageError(
            f"{layer} has zero points, but its configuration calls it symmetric.",
            "Check that config.json and the tensors are of the same checkpoint.",
        )


def refuse_damaged(name: str, tensor: Any) -> None:
    """No empty weight, and none with NaN or infinity, as what is quantized here has none.

    Raises:
        UsageError: it is one.
    """
    torch = torch_library()
    if not tensor.numel():
        raise UsageError(
            f"{name} is empty: {tuple(tensor.shape)}.", "Download the checkpoint's files again."
        )
    if tensor.dtype == torch.float8_e4m3fn:
        good = (tensor.view(torch.uint8) & 127) != 127  # all exponent and mantissa bits: NaN
    else:
        good = tensor.isfinite()
    if not bool(good.all()):
        raise UsageError(
            f"{name} has NaN or infinity in {int((~good).sum())} of {tensor.numel()} places.",
            "Download the checkpoint's files again; a layer saved so has no product.",
        )


def _not_as_published(layer: str, name: str, tensor: Any, wanted: str) -> UsageError:
    found = f"{layer}.{name} is {tensor.dtype} {tuple(tensor.shape)}, not {wanted}."
    return unsupported(found)
