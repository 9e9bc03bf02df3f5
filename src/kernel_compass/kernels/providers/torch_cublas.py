"""16-bit products by cuBLAS (oneDNN on a CPU): the baseline that everything is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_compass.kernels.providers.base import (
    checked,
    compulsory,
    first,
    missing,
    only_formats,
    torch,
    with_streamed,
)
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.contracts import Config, Prepared, Target, Tensor
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload


class CublasBf16:
    """`torch.bmm` and `torch.mm`, which write where `out` lies, strided or not."""

    name = "cublas_bf16"
    provider = "torch"

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""
        return first(missing("torch", target), only_formats(number_format, "bf16", "fp16"))

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """The weight as it was handed in, or copied to be dense along N (`kn`) or K (`nk`): cuBLAS
        has other kernels for each."""
        return ({"layout": "given"}, {"layout": "kn"}, {"layout": "nk"})

    def prepare(
        self, weight: QuantizedWeight, workload: Workload, config: Config | None = None
    ) -> Prepared:
        """Keep the weight, or copy it into the layout asked for."""
        config = checked(self, weight, workload, config)
        codes = laid_out(weight.codes, str(config["layout"]))
        return with_streamed(weight, workload, config, {"weight": codes})

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """One launch; see `Implementation.run`."""
        (weight,) = streamed
        if prepared.workload.op is Op.LINEAR:
            return torch().mm(a, weight[0], out=out)
        return torch().bmm(a, weight, out=out)

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""
        return compulsory(workload, number_format, scale_bytes=0)


def laid_out(codes: Tensor, layout: str) -> Tensor:
    """A `(H, K, N)` weight as it is (`given`), dense along N (`kn`) or along K (`nk`)."""
    if layout == "kn":
        return codes.contiguous()
    if layout == "nk":
        return codes.transpose(1, 2).contiguous().transpose(1, 2)
    return codes
