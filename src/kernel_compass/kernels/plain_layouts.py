"""How plain kernels take weights and operands: codes with K or N contiguous, views with heads."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from kernel_compass.errors import UsageError
from kernel_compass.kernels.quantized import QuantizedWeight

ALIGNMENT = 16
"""Bytes of the widest load: rows of 8-bit codes start at multiples of it."""


def next_power_of_2(number: int) -> int:
    """Smallest power of two that is not below a positive number."""
    return 1 << max(number - 1, 0).bit_length()


def columns_first(codes: Any) -> Any:
    """`(H, K, N)` 8-bit codes as `(H, N, K')`, K contiguous, padded with zeros to 16 bytes: what
    8-bit tensor-core instructions want of both operands."""
    heads, reduction, columns = codes.shape
    padded = -(-max(reduction, 1) // ALIGNMENT) * ALIGNMENT
    packed = codes.new_empty((heads, columns, padded))
    packed.view(_bytes_of(codes)).zero_()
    packed[:, :, :reduction].copy_(codes.transpose(1, 2))
    return packed


def _bytes_of(codes: Any) -> Any:
    """`torch.uint8`, without importing torch."""
    return (
        codes.new_empty(0).view(-1).byte().dtype if codes.dtype.is_floating_point else codes.dtype
    )


def scales_of(weight: QuantizedWeight) -> Any:
    """The scales of a weight whose format has some.

    Raises:
        UsageError: it came without.
    """
    if weight.scales is None:
        raise UsageError(
            f"A weight of {weight.format.name} came without scales.", "Quantize it anew."
        )
    return weight.scales


@dataclass(frozen=True)
class PlainWeight:
    """A weight that is streamed as it came, N contiguous; from `pack_plain`."""

    codes: Any
    """`(H, K, N)`: bfloat16, float16, int8 or float8_e4m3fn."""
    scales: Any | None
    """`(H, N)`; `None` for 16-bit weights."""

    def check_meets(self, a: Any) -> None:
        """A 16-bit weight and its activations are multiplied in one type.

        Raises:
            UsageError: they are of two.
        """
        if self.scales is None and self.codes.dtype != a.dtype:
            raise UsageError(
                f"The weight is {self.codes.dtype}, the activations are {a.dtype}.",
                "Cast one of them: a product of 16-bit numbers is taken in one type.",
            )


def pack_plain(weight: QuantizedWeight) -> PlainWeight:
    """A weight of a 16-bit or `w8a16` format; nothing is copied that is contiguous already.

    Raises:
        UsageError: another format.
    """
    kind = weight.format
    if kind.weight.bits < 8 or kind.activation.bits == 8 or kind.group is not None:
        raise UsageError(
            f"A weight of {kind.name} is not what this kernel multiplies.",
            "Use bf16, fp16, w8a16_fp8 or w8a16_int8.",
        )
    scales = None
    if kind.weight.bits == 8:
        scales = scales_of(weight).reshape(weight.heads, weight.columns).contiguous()
    return PlainWeight(weight.codes.contiguous(), scales)


def capability_of(tensor: Any) -> tuple[int, int] | None:
    """Compute capability of the GPU a tensor lies on; `None` on a CPU."""
    if tensor.device.type != "cuda":
        return None
    found = import_module("torch").cuda.get_device_capability(tensor.device)
    return cast("tuple[int, int]", found)


def with_heads(tensor: Any, what: str, sizes: tuple[int | None, int | None, int | None]) -> Any:
    """A view `(H, rows, columns)` of a bmm's or linear's operand whose last dimension is dense.

    Args:
        tensor: three dimensions, or two for one head.
        what: its name in a message.
        sizes: what each of the three must be; `None` = anything.

    Raises:
        UsageError: wrong sizes, or a last dimension that is not dense.
    """
    view = tensor.unsqueeze(0) if tensor.dim() == 2 else tensor
    fits = view.dim() == 3 and all(
        want is None or want == have for want, have in zip(sizes, view.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in sizes)
        raise UsageError(f"{what} has shape {tuple(tensor.shape)}.", f"It must be ({wanted}).")
    if view.shape[2] > 1 and view.stride(2) != 1:
        raise UsageError(
            f"The last dimension of {what} has stride {view.stride(2)}.",
            "Pass a tensor whose last dimension is dense, e.g. its contiguous().",
        )
    return view


def with_output(a: Any, out: Any | None, sizes: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    """A product's activations and output as views with heads, and the output as it is returned.

    Args:
        a: `(H, M, K)` or `(M, K)`.
        out: `(H, M, N)` or `(M, N)`; a new one of the type of `a` where `None`.
        sizes: H, K and N of the weight.

    Raises:
        UsageError: as `with_heads`.
    """
    heads, reduction, columns = sizes
    x = with_heads(a, "a", (heads, None, reduction))
    if out is None:
        out = a.new_empty((*a.shape[:-1], columns))
    return x, with_heads(out, "out", (heads, x.shape[1], columns)), out
