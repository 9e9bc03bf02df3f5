"""The road of a run for libraries that multiply one matrix: linear, or bmm with one head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from kernel_compass.kernels.providers.base import ONLY, compulsory, first, missing, one_head
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload


class MatrixImplementation(ABC):
    """An `Implementation` of a library that knows `[M, K] @ [K, N]` alone.

    Subclasses say what else they cannot do (`reason`), pack (`prepare`) and multiply (`multiply`).
    """

    name: str = ""
    provider: str = ""
    package: str = ""
    """The distribution that must be installed."""
    scale_bytes: int = 2
    """Stored bytes that belong to one group of weights."""

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return first(
            missing(self.package, target),
            self.reason(workload, number_format, target),
            one_head(workload),
        )

    @abstractmethod
    def reason(self, workload: Workload, number_format: NumberFormat, target: Target) -> str | None:
        """Why the library cannot, its being installed and the number of heads apart."""

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """All configurations, the default first."""
        return (ONLY,)

    @abstractmethod
    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Pack a weight; see `Implementation.prepare`."""

    @abstractmethod
    def multiply(
        self, prepared: Prepared, streamed: Sequence[Tensor], rows: Tensor, into: Tensor | None
    ) -> Tensor:
        """The product of `(M, K)` rows, M at least 1, as `(M, N)`.

        Args:
            prepared: what `prepare` returned.
            streamed: the tensors to read.
            rows: 16-bit activations with a dense last dimension.
            into: where the result is wanted; a library that cannot write there returns its own.
        """

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """One launch; see `Implementation.run`."""
        batched = prepared.workload.op is Op.BMM
        rows = a[0] if batched else a
        into = out[0] if batched and out is not None else out
        if rows.shape[0] == 0:
            empty = rows.new_empty((0, prepared.workload.columns))
            return _shaped(empty, batched) if out is None else out
        result = self.multiply(prepared, streamed, rows, into)
        if out is None:
            return _shaped(result, batched)
        if result is not into:
            out.copy_(_shaped(result, batched))
        return out

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""
        return compulsory(workload, number_format, self.scale_bytes)


def _shaped(result: Tensor, batched: bool) -> Tensor:
    return result.unsqueeze(0) if batched else result


def weight_rows(weight: QuantizedWeight) -> Tensor:
    """The codes of a one-headed weight as `(N, K)`, dense along K; a view where they are so."""
    return weight.codes[0].t().contiguous()


def channel_scales(weight: QuantizedWeight) -> Tensor:
    """The scales of a one-headed weight with one a column, as `(N,)`."""
    assert weight.scales is not None, "a format with scales was checked"
    return weight.scales[0, 0].contiguous()


def group_values(values: Tensor) -> Tensor:
    """Scales or zero points `(1, G, N)` of a one-headed weight as `(N, G)`."""
    return values[0].t().contiguous()
