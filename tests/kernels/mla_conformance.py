"""What MLA's fused kernels must compute, on any device: float64, written from the definition."""

from __future__ import annotations

from copy import copy
from typing import Any

from kernel_cases import gaussian

from kernel_compass.kernels.plain_layouts import pack_plain
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import dequantize, expected
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.validation.fidelity import check_fidelity

E4M3_LARGEST = 448.0
FORMATS = ("bf16", "w8a16_int8", "w8a16_fp8")
"""Each kind of weight of both kernels; fp16 is bf16's road."""


class Query:
    """Operands of `q_absorb_rope`: views of one query buffer, as a model has them.

    `cuda` has DeepSeek-V3's sizes unless others are given. Kernel files are imported when they are
    called: tests in the interpreter have to come first.
    """

    def __init__(
        self,
        torch: Any,
        name: str,
        rows: int,
        device: str = "cpu",
        sizes: tuple[int, int, int, int] | None = None,
        dtype: Any = None,
    ) -> None:
        default = (16, 128, 512, 64) if device == "cuda" else (2, 128, 96, 64)
        heads, depth, self.columns, rotated = sizes or default
        positions = 4096 if device == "cuda" else 50
        dtype = dtype or (torch.float16 if name == "fp16" else torch.bfloat16)
        self.torch, self.rows, self.heads = torch, rows, heads
        weight_sizes = (heads, depth, self.columns)
        self.weight, self.packed = absorb_weight(torch, name, weight_sizes, device)
        query = gaussian(torch, rows, heads, depth + rotated).to(dtype).to(device)
        self.nope, self.pe = query[..., :depth], query[..., depth:]
        self.table = table(torch, positions, rotated, torch.float32, device)
        self.positions = ((torch.arange(rows) * 97 + 5) % positions).to(device)

    def run(self, **options: Any) -> Any:
        """The kernel."""
        from kernel_compass.kernels.q_absorb_rope import q_absorb_rope

        return q_absorb_rope(self.nope, self.pe, self.packed, self.table, self.positions, **options)

    def row(self, index: int) -> Query:
        """The same with one row alone."""
        alone = copy(self)
        for part in ("nope", "pe", "positions"):
            setattr(alone, part, getattr(self, part)[index : index + 1])
        return alone

    def rotation(self, style: str = "interleaved") -> tuple[Any, Any]:
        """As `rotated`."""
        return rotated(self.torch, self.pe, self.table, self.positions, style == "interleaved")

    def check(self, out: Any, style: str = "interleaved") -> None:
        """A query of 16 bits."""
        check_query(self.nope, self.weight, out[..., : self.columns])
        check_rotation(out[..., self.columns :], *self.rotation(style))

    def check_e4m3(self, out: Any, divisor: float) -> Any:
        """A query of e4m3; the values that it stands for are returned."""
        product, magnitude = product_and_magnitude(self.nope, self.weight)
        rotation, terms = self.rotation()
        value = self.torch.cat([product, rotation], 2) / divisor
        check_e4m3(out, value, self.torch.cat([magnitude, terms], 2) / divisor)
        return value


def values(
    torch: Any, name: str, sizes: tuple[int, int, int, int], device: str = "cpu"
) -> tuple[Any, QuantizedWeight, Any]:
    """Operands of `v_up_group_quant` of sizes H, M, K, N: `x (M, H, K)`, a view of attention's
    `(H, M, K)`, and the weight twice."""
    heads, rows, depth, columns = sizes
    weight, packed = absorb_weight(torch, name, (heads, depth, columns), device)
    dtype = torch.float16 if name == "fp16" else torch.bfloat16
    x = gaussian(torch, heads, rows, depth).to(dtype).to(device).transpose(0, 1)
    return x, weight, packed


def check_groups(x: Any, weight: QuantizedWeight, codes: Any, scales: Any) -> None:
    """Codes and scales of `v_up_group_quant`."""
    product, magnitude = product_and_magnitude(x, weight)
    groups = product.reshape(len(x), -1, 128)
    magnitude = magnitude.reshape(groups.shape)
    wanted = groups.abs().amax(2) / E4M3_LARGEST
    assert str(scales.dtype) == "torch.float32"
    assert ((scales.double() - wanted).abs() <= 1e-5 * magnitude.amax(2)).all()
    by = scales.double()[:, :, None]
    by = by.where(by > 2.0**-120, 1.0)
    check_e4m3(codes.reshape(groups.shape), groups / by, magnitude / by)


def absorb_weight(
    torch: Any, name: str, sizes: tuple[int, int, int], device: str
) -> tuple[QuantizedWeight, Any]:
    """A Gaussian weight `(H, K, N)`, for the reference and as the kernel takes it."""
    values = gaussian(torch, *sizes).to(device) / sizes[1] ** 0.5
    weight = quantize(values, NumberFormat.parse(name))
    return weight, pack_plain(weight)


def rotated(torch: Any, x: Any, cos_sin: Any, positions: Any, interleaved: bool) -> tuple[Any, Any]:
    """`x (M, H, R)` turned, float64: number by number; and the sum of the terms' magnitudes."""
    half = x.shape[-1] // 2
    value, magnitude = x.double().clone(), x.double().clone()
    for i in range(half):
        left, right = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        cos = cos_sin[positions, i].double()[:, None]
        sin = cos_sin[positions, half + i].double()[:, None]
        p, q = x[..., left].double(), x[..., right].double()
        value[..., left], value[..., right] = p * cos - q * sin, q * cos + p * sin
        magnitude[..., left] = (p * cos).abs() + (q * sin).abs()
        magnitude[..., right] = (q * cos).abs() + (p * sin).abs()
    return value, magnitude


def table(torch: Any, positions: int, rotated_size: int, dtype: Any, device: str) -> Any:
    """Cosines, then sines, of DeepSeek's angles."""
    half = max(rotated_size // 2, 1)
    turns = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * turns
    return torch.cat([angles.cos(), angles.sin()], 1).to(dtype).to(device)


def check_rotation(out: Any, value: Any, magnitude: Any) -> None:
    half_ulp = {"torch.bfloat16": 2.0**-8, "torch.float16": 2.0**-11}[str(out.dtype)]
    allowed = half_ulp * value.abs() + 2.0**-21 * magnitude + 2.0**-25
    assert ((out.double() - value).abs() <= allowed).all()


def check_query(a: Any, weight: QuantizedWeight, out: Any) -> None:
    """The absorbed part, 16 bits; `a` and `out` are `(M, H, .)`."""
    found = check_fidelity(out.transpose(0, 1), expected(a.transpose(0, 1), weight))
    assert found.passed, found.reason


def check_e4m3(codes: Any, value: Any, magnitude: Any) -> None:
    """Codes against the values they stand for, already divided by the scale: the nearest ones, but
    for what float32 sums may be off."""
    assert str(codes.dtype) == "torch.float8_e4m3fn"
    wanted = value.clamp(-E4M3_LARGEST, E4M3_LARGEST)
    allowed = 2.0**-4 * wanted.abs() + 2.0**-10 + 2.0**-14 * magnitude
    error = (codes.double() - wanted).abs()
    assert (error <= allowed).all()
    assert error.square().sum() <= 0.03**2 * wanted.square().sum()


def product_and_magnitude(a: Any, weight: QuantizedWeight) -> tuple[Any, Any]:
    """`(M, H, N)`, float64: the product, and that of the absolute values."""
    w, left = dequantize(weight), a.double().transpose(0, 1)
    return (left @ w).transpose(0, 1), (left.abs() @ w.abs()).transpose(0, 1)
