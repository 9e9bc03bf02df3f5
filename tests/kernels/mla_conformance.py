"""What MLA's fused kernels must compute, on any device: float64, written from the definition."""

from __future__ import annotations

from typing import Any

from kernel_cases import gaussian

from kernel_compass.kernels.plain_layouts import pack_plain
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import dequantize, expected
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.validation.fidelity import check_fidelity

E4M3_LARGEST = 448.0


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
