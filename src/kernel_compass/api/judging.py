"""The judge in a process of its own: tasks for workers, and the doors that call them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kernel_compass.api.product_problem import ImplementationRunner, ProductProblem, of_product
from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.execution.tasks import run_task
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers import registry
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.trial import Reason
from kernel_compass.records.workload import Op, Workload
from kernel_compass.validation import fidelity, format_budget, judge, output_gate, outputs
from kernel_compass.validation.judging import Effort, Judgement, Machine
from kernel_compass.validation.machines import CpuMachine
from kernel_compass.validation.self_test import CheatResult, SelfTest, self_test
from kernel_compass.validation.watch import Watch

SELF_TEST = f"{__name__}:self_test_task"
JUDGE = f"{__name__}:judge_task"
SELF_TEST_TIMEOUT_S = 600.0
TRUSTED = (judge, fidelity, format_budget, output_gate, outputs)

Tell = Callable[[Mapping[str, Any]], None]


def run_self_test(
    device: str | None = None, on_result: Callable[[CheatResult], None] = lambda _: None
) -> SelfTest:
    """Let the judge prove itself, in a fresh process.

    Args:
        device: `cpu`, `cuda:0`; `None` = the GPU where torch sees one.
        on_result: told of each cheat as it is judged.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: the process died.
    """

    def progress(fields: dict[str, Any]) -> None:
        on_result(_cheat_result(fields))

    answer = run_task(SELF_TEST, {"device": device}, progress, SELF_TEST_TIMEOUT_S)
    results = tuple(_cheat_result(fields) for fields in answer["results"])
    return SelfTest(results, tuple(answer["not_staged"]), answer["honest_rejected"])


def self_test_fields(outcome: SelfTest) -> dict[str, Any]:
    """A self-test as JSON."""
    return {
        "passed": outcome.passed,
        "results": [{**_fields(one), "caught": one.caught} for one in outcome.results],
        "not_staged": list(outcome.not_staged),
        "honest_rejected": outcome.honest_rejected,
    }


def self_test_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: see `run_self_test`."""
    torch = torch_library()
    device = arguments["device"] or ("cuda:0" if torch.cuda.is_available() else "cpu")
    found = self_test(torch, machine_of(device), lambda one: tell(_fields(one)))
    return {
        "results": [_fields(one) for one in found.results],
        "not_staged": list(found.not_staged),
        "honest_rejected": found.honest_rejected,
    }


def judge_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: judge an implementation on a product.

    Args:
        arguments: `op`, `heads`, `tokens`, `reduction`, `columns`, `format`, `implementation`,
            `config`, `budget`, `device`; optional `effort`.
        tell: told when building is over.
    """
    torch = torch_library()
    a = arguments
    workload = Workload(Op(a["op"]), a["heads"], a["tokens"], a["reduction"], a["columns"])
    number_format, name = NumberFormat.parse(a["format"]), a["implementation"]
    problem = ProductProblem(workload, number_format, name, a["budget"], a["device"])
    machine = machine_of(a["device"])  # before the watch: CUDA sets up variables and threads
    watch = Watch(torch, TRUSTED)
    tell({"phase": "compile"})
    implementation = registry.implementation(name)
    found = judge.judge(
        torch,
        problem,
        of_product(workload),
        lambda: ImplementationRunner(implementation, workload, number_format, a["config"]),
        machine,
        watch,
        Effort(**a.get("effort", {})),
        declared_baseline=implementation.provider == "torch",
    )
    return judgement_fields(found)


def judgement_fields(found: Judgement) -> dict[str, Any]:
    """A judgement as JSON."""
    return {**asdict(found), "reason": found.reason and found.reason.value}


def machine_of(device: str) -> Machine:
    """The judge's view of a device.

    Raises:
        UsageError: there is no such device.
        MissingDependency: torch is not installed.
    """
    torch = torch_library()
    if device == "cpu":
        return CpuMachine(torch)
    if not device.startswith("cuda"):
        raise UsageError(f"{device!r} is no device.", "Name cpu, or cuda:0, cuda:1, ...")
    if not torch.cuda.is_available():
        raise MissingDependency("torch sees no GPU.", "Run with --device cpu, or look at doctor.")
    return CudaMachine(torch, int(device.partition(":")[2] or 0))


class CudaMachine:
    """A GPU, through the timing device's own checks."""

    kind = "cuda"

    def __init__(self, torch: Any, index: int) -> None:
        from kernel_compass.measurement.torch_device import TorchDevice

        self._torch = torch
        self._device = TorchDevice(index)
        self._where = f"cuda:{index}"

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self._torch.cuda.synchronize(self._where)

    def poison(self, sizes: Sequence[int]) -> None:
        """Leave freed blocks of NaN for the caching allocator to hand out again."""
        for size in sizes:
            if size:
                bits = self._torch.uint8
                blocks = [
                    self._torch.full((size,), 0xFF, dtype=bits, device=self._where) for _ in "ab"
                ]
                del blocks

    def leaves_side_streams(self, call: Callable[[], Any]) -> bool | None:
        """Work that the current stream does not wait for."""
        return self._device.leaves_work_on_side_streams(call)


def _fields(one: CheatResult) -> dict[str, Any]:
    return {
        "name": one.name,
        "expected": [reason.value for reason in one.expected],
        "found": one.found and one.found.value,
        "detail": one.detail,
    }


def _cheat_result(fields: Mapping[str, Any]) -> CheatResult:
    return CheatResult(
        fields["name"],
        tuple(Reason(value) for value in fields["expected"]),
        Reason(fields["found"]) if fields["found"] else None,
        fields["detail"],
    )
