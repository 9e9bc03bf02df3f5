"""What each of the own wider implementations must do, on any device: one check a function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernel_cases import HOSTILE, gaussian, strided

from kernel_compass.kernels.providers.own_wider import (
    OWN_FP8_BLOCK,
    OWN_W8A8,
    STUDY_W4A16,
    STUDY_W8A8,
)
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.references import expected
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload
from kernel_compass.validation.fidelity import check_fidelity

SHAPES = (
    (2, 1, 128, 96),
    (3, 5, 100, 70),
    (1, 17, 257, 33),
    (1, 2, 700, 130),
    (1, 1, 1, 1),
    (1, 33, 31, 5),
)
"""H, M, K, N: one row, one of everything, nothing a multiple of anything."""


@dataclass(frozen=True)
class Tested:
    """One implementation as the tests of all of them ask for it."""

    implementation: Any
    formats: tuple[str, ...]
    configs: tuple[Config, ...]
    """One of each kind of tile."""
    depths: tuple[int, ...] = (300,)
    """K in several tiles, and, where that is other code, in one."""
    rare: tuple[str, ...] = ()
    """Formats whose codes and scales are read as those of `formats` are; tested once each."""

    def pairs(self, rare: bool = False) -> list[tuple[Any, str]]:
        """Implementation and format."""
        names = (*self.formats, *(self.rare if rare else ()))
        return [(self.implementation, name) for name in names]


def _tile(rows: int, columns: int, warps: int, stages: int, **more: int) -> Config:
    sizes = {"BLOCK_M": rows, "BLOCK_N": columns, **more}
    return {**sizes, "num_warps": warps, "num_stages": stages}


TESTED = (
    Tested(
        OWN_W8A8,
        ("w8a8_int8", "w8a8_fp8"),
        (
            _tile(16, 64, 4, 3, BLOCK_K=128, SWAP=True),
            _tile(32, 32, 2, 2, BLOCK_K=64, SWAP=False),
            _tile(16, 128, 8, 1, BLOCK_K=1024, SWAP=True),
        ),
        depths=(100, 600),
    ),
    Tested(
        OWN_FP8_BLOCK,
        ("w8a8_fp8_block",),
        (_tile(16, 128, 4, 3, SWAP=True), _tile(32, 32, 4, 2, SWAP=False)),
    ),
    Tested(
        STUDY_W4A16,
        ("w4a16_g128", "w4a16_g32_asym", "w4a16_gk"),
        (_tile(16, 128, 4, 3, BLOCK_K=64), _tile(32, 32, 4, 2, BLOCK_K=32)),
        rare=("w4a16_g64", "w4a16_gk_asym"),
    ),
    Tested(
        STUDY_W8A8,
        ("w8a8_int8", "w8a8_fp8"),
        (_tile(16, 128, 4, 3, BLOCK_K=64), _tile(32, 32, 4, 2, BLOCK_K=128)),
    ),
)
PAIRS = [pair for tested in TESTED for pair in tested.pairs()]


def name_of(value: Any) -> str | None:
    """Of an implementation or a format, in a test's name."""
    return value if isinstance(value, str) else getattr(value, "name", None)


def weight_of(torch: Any, name: str, heads: int, depth: int, columns: int, device: str) -> Any:
    """A Gaussian weight in a format."""
    values = gaussian(torch, heads, depth, columns).to(device) / depth**0.5
    return quantize(values, NumberFormat.parse(name))


class Case:
    """One implementation with one prepared weight."""

    def __init__(
        self,
        torch: Any,
        implementation: Any,
        name: str,
        shape: tuple[int, int, int, int],
        config: Config | None = None,
        device: str = "cpu",
    ) -> None:
        heads, self.rows, self.depth, columns = shape
        self.torch, self.implementation = torch, implementation
        self.weight = weight_of(torch, name, heads, self.depth, columns, device)
        self.workload = Workload(Op.BMM, heads, self.rows, self.depth, columns)
        self.prepared = implementation.prepare(self.weight, self.workload, config)
        # 4-bit weights are scaled before the product and rounded to the activations' type.
        self.rounded_weights = name.startswith("w4")

    def activations(self, dtype: Any) -> Any:
        """Gaussian, `(H, M, K)`."""
        values = gaussian(self.torch, self.workload.heads, self.rows, self.depth)
        return values.to(dtype).to(self.weight.codes.device)

    def run(self, a: Any, out: Any = None) -> Any:
        """With the prepared operands."""
        return self.implementation.run(self.prepared, self.prepared.streamed, a, out)

    def check(self, a: Any, out: Any) -> None:
        """Against float64."""
        found = check_fidelity(out, expected(a, self.weight), rounded_weights=self.rounded_weights)
        assert found.passed, found.reason


def check_dense(case: Case, dtype: Any) -> None:
    a = case.activations(dtype)
    before = a.clone()
    out = case.run(a)
    assert out.dtype == dtype and out.shape == (*a.shape[:2], case.workload.columns)
    assert case.torch.equal(a, before)
    case.check(a, out)
    assert case.torch.equal(out, case.run(a))


def check_strided(case: Case, dtype: Any, offset: int) -> None:
    """Views in, views out; what lies between stays as it was."""
    a = strided(case.torch, case.activations(dtype), dtype, offset)
    heads, rows, columns = case.workload.heads, case.rows, case.workload.columns
    buffer = case.torch.full((rows, heads, columns + 5), 7.0, dtype=dtype, device=a.device)
    out = buffer[:, :, 2 : columns + 2].transpose(0, 1)
    case.check(a, case.run(a, out))
    assert (buffer[:, :, :2] == 7).all() and (buffer[:, :, columns + 2 :] == 7).all()


def check_empty(case: Case, dtype: Any) -> None:
    a = case.activations(dtype)[:, :0]
    assert case.run(a).shape == (case.workload.heads, 0, case.workload.columns)


def check_other_tokens(case: Case, dtype: Any, rows: int) -> None:
    """A weight prepared for some tokens serves any number."""
    a = gaussian(case.torch, case.workload.heads, rows, case.depth).to(dtype)
    a = a.to(case.weight.codes.device)
    case.check(a, case.run(a))


def check_rows_alone(case: Case, dtype: Any) -> None:
    """Each row comes out bit by bit as it does in a batch of one."""
    a = case.activations(dtype)
    together = case.run(a)
    for row in {0, case.rows // 2, case.rows - 1}:
        alone = case.run(a[:, row : row + 1])
        assert case.torch.equal(alone, together[:, row : row + 1])


def check_linear(torch: Any, implementation: Any, name: str, dtype: Any, device: str) -> None:
    rows, depth, columns = 3, 200, 75
    weight = gaussian(torch, columns, depth).to(device) / depth**0.5
    q = quantize(linear_weight(weight), NumberFormat.parse(name))
    workload = Workload(Op.LINEAR, 1, rows, depth, columns)
    prepared = implementation.prepare(q, workload)
    a = gaussian(torch, rows, depth).to(dtype).to(device)
    out = implementation.run(prepared, prepared.streamed, a)
    assert out.shape == (rows, columns)
    found = check_fidelity(out, expected(a, q), rounded_weights=name.startswith("w4"))
    assert found.passed, found.reason


def hostile_activations(case: Case, dtype: Any) -> Iterator[tuple[str, Any]]:
    """Every hostile kind that the type can hold."""
    for name, make in HOSTILE.items():
        values = make(case.torch, case.activations(case.torch.float32))
        narrow = values.to(dtype)
        if narrow.isfinite().all():
            yield name, narrow


def check_not_finite(case: Case, dtype: Any, bad: float) -> None:
    """A row with an infinity or NaN in it shows it; the others are as without it."""
    clean = case.activations(dtype)
    a = clean.clone()
    a[:, 0, case.depth // 3] = bad
    out = case.run(a)
    assert not out[:, 0].isfinite().any()
    assert case.torch.equal(out[:, 1:], case.run(clean)[:, 1:])
