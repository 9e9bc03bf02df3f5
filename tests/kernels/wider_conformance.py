"""What each of the own wider implementations must do, on any device: one check a function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernel_cases import HOSTILE, gaussian, strided

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
