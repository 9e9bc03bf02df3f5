"""Products as recipes: any process can build an implementation's launch anew and time it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers import registry
from kernel_compass.kernels.quantize import quantize
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.recipe import Recipe
from kernel_compass.measurement.simulated import SimulatedDevice, SimulatedOperand
from kernel_compass.measurement.subject import Subject
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import Code, NumberFormat
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

SUBJECT = f"{__name__}:product_subject"


def product_recipe(workload: Workload, candidate: Candidate) -> Recipe:
    """The recipe of an implementation on a product.

    Args:
        workload: its sizes.
        candidate: with a number format.
    """
    sizes = {
        "op": workload.op.value,
        "heads": workload.heads,
        "tokens": workload.tokens,
        "reduction": workload.reduction,
        "columns": workload.columns,
    }
    chosen = {"format": candidate.format or "bf16", "implementation": candidate.implementation}
    return Recipe(SUBJECT, {**sizes, **chosen, "config": dict(candidate.config)})


def product_subject(
    device: TimingDevice,
    op: str,
    heads: int,
    tokens: int,
    reduction: int,
    columns: int,
    format: str,
    implementation: str,
    config: Mapping[str, Any] | None = None,
) -> Subject:
    """Random operands, packed; one launch of an implementation.

    Weights are Gaussian with variance 1/K, activations Gaussian. On a simulated device the launch
    moves the bytes that the implementation declares.

    Raises:
        UsageError: the implementation cannot compute it.
        MissingDependency: its library is not installed.
    """
    workload = Workload(Op(op), heads, tokens, reduction, columns)
    number_format = NumberFormat.parse(format)
    one = registry.implementation(implementation)
    if isinstance(device, SimulatedDevice):
        return _simulated(device, one, workload, number_format)
    torch = torch_library()
    where = f"cuda:{device.index}"  # type: ignore[attr-defined]
    kind = torch.float16 if number_format.activation is Code.FP16 else torch.bfloat16
    full = torch.randn(heads, reduction, columns, device=where) * reduction**-0.5
    linear = workload.op is Op.LINEAR
    shape = (tokens, reduction) if linear else (heads, tokens, reduction)
    a = torch.randn(shape, device=where).to(kind)
    out = torch.empty((*shape[:-1], columns), device=where, dtype=kind)
    prepared = one.prepare(quantize(full, number_format), workload, _given(config))
    count = len(prepared.streamed)

    def run(*operands: Any) -> object:
        *streamed, a_, out_ = operands
        return one.run(prepared, streamed[:count], a_, out_)

    return Subject(run, prepared.streamed, (a,), (out,))


def _given(config: Mapping[str, Any] | None) -> Config | None:
    return dict(config) if config else None


def _simulated(
    device: SimulatedDevice, one: Any, workload: Workload, number_format: NumberFormat
) -> Subject:
    traffic = one.traffic(workload, number_format)
    weight = SimulatedOperand(traffic.weight_bytes)
    a = SimulatedOperand(traffic.activation_bytes)
    out = SimulatedOperand(traffic.output_bytes)
    return Subject(device.launch, (weight,), (a,), (out,))
