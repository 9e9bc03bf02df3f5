"""Activations quantized by rows in a launch of their own, and the scaling of an int32 product.

A library that multiplies 8-bit numbers leaves both to its caller. On a GPU each is one kernel here:
a chain of PyTorch's element-wise kernels would charge the library with launches it needs not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kernel_compass.kernels.providers.base import torch
from kernel_compass.kernels.quantize import LARGEST
from kernel_compass.records.contracts import Tensor
from kernel_compass.records.number_format import Code


def quantize_rows(rows: Tensor, code: Code, at_least: int = 0) -> tuple[Tensor, Tensor]:
    """Codes `(M', K)` and float32 scales `(M, 1)` of `(M, K)` activations: absmax by rows.

    Args:
        rows: 16-bit, dense along K.
        code: int8 (rounded to nearest, ties to even) or fp8.
        at_least: the least M' for a library that wants more rows; those added are not written.
    """
    number = torch().int8 if code is Code.INT8 else torch().float8_e4m3fn
    shape = (max(rows.shape[0], at_least), rows.shape[1])
    codes = torch().empty(shape, dtype=number, device=rows.device)
    scales = torch().empty((rows.shape[0], 1), dtype=torch().float32, device=rows.device)
    if rows.is_cuda:
        _kernels("quantize_rows").launch_quantize_rows(rows[None], codes[None], scales)
    else:
        _quantize(rows, codes[: rows.shape[0]], scales, LARGEST[code])
    return codes, scales


def scaled(product: Tensor, rows: Tensor, columns: Tensor, into: Tensor) -> Tensor:
    """`product[m, n] * rows[m] * columns[n]` in the dtype of `into`, which is returned.

    Args:
        product: int32, `(M' >= M, N)`.
        rows: float32 `(M, 1)`.
        columns: float32 `(N,)`.
        into: `(M, N)`, dense along N.
    """
    if into.is_cuda:
        _kernels("providers.activation_kernels").launch_scaled(product, rows, columns, into)
        return into
    return into.copy_(product[: into.shape[0]].float() * rows * columns)


def _quantize(rows: Tensor, codes: Tensor, scales: Tensor, largest: float) -> None:
    values = rows.float()
    absmax = values.abs().amax(dim=1, keepdim=True)
    scale = torch().where(absmax > 0, (absmax / largest).clamp(min=2.0**-126), 1.0)
    scales.copy_(torch().where(absmax.isfinite(), scale, torch().nan))
    quotient = (values / scale).nan_to_num(0.0).clamp(-largest, largest)
    codes.copy_(quotient.round() if codes.dtype == torch().int8 else quotient)


def _kernels(module: str) -> Any:
    return import_module(f"kernel_compass.kernels.{module}")
