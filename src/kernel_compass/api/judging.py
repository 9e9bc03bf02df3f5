"""The judge in a process of its own: how it is called there, and how it proves itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kernel_compass.api.places import chosen_gpus
from kernel_compass.codec.finite import finite
from kernel_compass.errors import MissingDependency, UsageError
from kernel_compass.execution.tasks import run_task
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.device import CPU
from kernel_compass.records.execution import SPENT
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation import judge
from kernel_compass.validation.judge_contracts import (
    Effort,
    JudgedProblem,
    Judgement,
    Machine,
    Runner,
    Tensors,
)
from kernel_compass.validation.machines import CpuMachine
from kernel_compass.validation.self_test import CheatResult, SelfTest, self_test
from kernel_compass.validation.watch import Watch

SELF_TEST = f"{__name__}:self_test_task"
SELF_TEST_TIMEOUT_S = 600.0

Tell = Callable[[Mapping[str, Any]], None]


def run_self_test(
    device: str | None = None, on_result: Callable[[CheatResult], None] = lambda _: None
) -> SelfTest:
    """Let the judge prove itself, in a fresh process.

    Args:
        device: `cpu`, `cuda:0`; `None` = the GPU where torch sees one. Of `cuda`, the first.
        on_result: told of each cheat as it is judged.

    Raises:
        MissingDependency: torch is not installed.
        MeasurementError: the process died, or this machine shows no such GPU.
        UsageError: there is no such device.
    """
    variables = {}
    if device is not None and device != CPU:  # by its UUID: another process may count otherwise
        variables["CUDA_VISIBLE_DEVICES"], device = chosen_gpus(device)[0], "cuda:0"

    def progress(fields: dict[str, Any]) -> None:
        on_result(_cheat_result(fields))

    arguments = {"device": device}
    answer = run_task(SELF_TEST, arguments, progress, SELF_TEST_TIMEOUT_S, variables)
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


LEAVES_TRACES = frozenset(
    (
        Reason.PATCHED,
        Reason.CHANGES_STATE,
        Reason.LOOKS_AT_THE_JUDGE,
        Reason.SIDE_STREAM,
        Reason.KEEPS_RUNNING,
        Reason.WRITES_OUTSIDE,
    )
)
"""Rejections after which a process is not judged in again."""


@dataclass(frozen=True)
class Judged:
    """What the judge says, and what the candidate holds."""

    judgement: Judgement
    added_bytes: int | None
    """Memory held beside the original weight; `None` = it does not say."""


class Telling:
    """A candidate that tells when its first call has returned: it builds no more, it runs."""

    def __init__(self, inner: Runner, on_run: Callable[[], None]) -> None:
        self._inner, self._on_run = inner, on_run
        self.added_bytes: int | None = None

    def prepare(self, held: Tensors) -> Any:
        """As the candidate does, and note what that holds."""
        state = self._inner.prepare(held)
        self.added_bytes = getattr(state, "added_bytes", None)
        return state

    def run(self, state: Any, given: Tensors) -> Any:
        """One call."""
        found = self._inner.run(state, given)
        self._on_run()
        return found


@dataclass(frozen=True)
class Bench:
    """A device that was opened, and then a picture of this process; made by `bench`."""

    torch: Any
    machine: Machine
    watch: Watch

    def judged(
        self,
        problem: JudgedProblem,
        workload: ProblemWorkload,
        build: Callable[[], Runner],
        on_run: Callable[[], None],
        effort: Effort | None = None,
        declared_baseline: bool = False,
    ) -> Judged:
        """Steps 1 to 3 of validation.

        Args:
            problem: what is computed.
            workload: the sizes it is proposed for.
            build: makes the candidate.
            on_run: called once, when it has run.
            effort: how hard to look.
            declared_baseline: it says itself that it is the library the baseline uses.
        """
        runners: list[Telling] = []
        waiting = [on_run]

        def told() -> None:
            if waiting:
                waiting.pop()()

        def telling() -> Telling:
            runners.append(Telling(build(), told))
            return runners[-1]

        found = judge.judge(
            self.torch,
            problem,
            workload,
            telling,
            self.machine,
            self.watch,
            effort,
            declared_baseline=declared_baseline,
        )
        added = next((r.added_bytes for r in runners if r.added_bytes is not None), None)
        return Judged(found, added)


def bench(device: str) -> Bench:
    """Open a device, then look at this process; call it before any code of a problem runs.

    In this order: what opening a GPU changes (variables, threads) is no candidate's doing.

    Raises:
        UsageError: there is no such device.
        MissingDependency: torch is not installed, or sees no GPU.
    """
    torch = torch_library()
    machine = machine_of(device)
    return Bench(torch, machine, Watch(torch, machine.carve_out_bytes))


def spent_by(found: Judgement) -> dict[str, str]:
    """What an answer says of its process where the candidate was caught changing more than itself.

    What it changed can be undone in part only, and would decide how the next one is judged.
    """
    if found.reason not in LEAVES_TRACES:
        return {}
    return {SPENT: f"What it was rejected for ({found.reason.value}) may outlive it"}


def judgement_fields(found: Judgement) -> dict[str, Any]:
    """A judgement as JSON: an error beside a reference of zeros is infinite, and said as none."""
    errors = ("fidelity_error_pct", "format_error_pct")
    return {
        **asdict(found),
        **{name: finite(getattr(found, name)) for name in errors},
        "reason": found.reason and found.reason.value,
        "unseen": list(found.unseen),
    }


def machine_of(device: str) -> Machine:
    """The judge's view of a device.

    Raises:
        UsageError: there is no such device.
        MissingDependency: torch is not installed.
    """
    torch = torch_library()
    if device == CPU:
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

    def carve_out_bytes(self) -> int | None:
        """Of L2, what is set aside for persisting accesses."""
        return self._device.carve_out()[1]

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
