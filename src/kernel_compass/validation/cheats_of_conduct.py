"""Cheats to name: what they patch, whom they call, and what they leave behind."""

from __future__ import annotations

import threading
import time
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation import output_gate
from kernel_compass.validation.cheat_parts import Cheat, Function, honest, reasons
from kernel_compass.validation.self_test_problem import SelfTestProblem


def _patches_timer(torch: Any, problem: SelfTestProblem) -> Function:
    right, true = honest(torch, problem), time.perf_counter

    def function(x: Any, w: Any) -> Any:
        time.perf_counter = lambda: true() / 2  # type: ignore[assignment]
        return right(x, w)

    return function


def _unpatch_timer(torch: Any) -> None:
    time.perf_counter = _TRUE_CLOCK  # type: ignore[assignment]


_TRUE_CLOCK = time.perf_counter


def _patches_check(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        output_gate.check_outputs = (  # type: ignore[assignment]
            lambda *_, **__: output_gate.GateFinding(None, "fine", 0.0)
        )
        return torch.zeros(*x.shape[:2], w.shape[1], device=x.device)

    return function


_TRUE_CHECK = output_gate.check_outputs


def _unpatch_check(torch: Any) -> None:
    output_gate.check_outputs = _TRUE_CHECK


def _patches_tensor(torch: Any, problem: SelfTestProblem) -> Function:
    true = torch.Tensor.isfinite

    def function(x: Any, w: Any) -> Any:
        torch.Tensor.isfinite = lambda self: true(self * 0)
        return x.new_full((*x.shape[:2], w.shape[1]), float("nan"))

    function.true = true  # type: ignore[attr-defined]
    return function


def _unpatch_tensor(torch: Any) -> None:
    if "isfinite" in vars(torch.Tensor):
        del torch.Tensor.isfinite


def _falls_back(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        try:
            raise RuntimeError("the new kernel does not support this")
        except RuntimeError:
            return torch.softmax(x @ w, -1)

    return function


def _calls_baseline(torch: Any, problem: SelfTestProblem) -> Function:
    return lambda x, w: problem.baseline({"x": x, "w": w}) * 1.0


def _adds_nothing(torch: Any, problem: SelfTestProblem) -> Function:
    return lambda x, w: torch.softmax(x @ w, -1) + 0


def _spells_it_otherwise(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        made = torch.nn.functional.softmax(torch.einsum("bmk,kn->bmn", x, w.clone()), dim=2)
        out = torch.empty_like(made)
        for index, one in enumerate(made):
            out[index] = one
        return out

    return function


def _in_a_thread(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(torch.softmax(x @ w, -1)))
        thread.start()
        thread.join()
        return found[0]

    return function


def _edits_reference(torch: Any, problem: SelfTestProblem) -> Function:
    def function(x: Any, w: Any) -> Any:
        SelfTestProblem.exact = (
            lambda self, inputs: torch.zeros(  # type: ignore[method-assign]
                *inputs["x"].shape[:2], inputs["w"].shape[1], dtype=torch.float64
            )
        )
        return torch.zeros(*x.shape[:2], w.shape[1], device=x.device)

    return function


_TRUE_EXACT = SelfTestProblem.exact


def _unedit_reference(torch: Any) -> None:
    SelfTestProblem.exact = _TRUE_EXACT  # type: ignore[method-assign]


def _changes_dtype(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.set_default_dtype(torch.float16)
        return right(x, w)

    return function


def _changes_flags(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        torch.set_float32_matmul_precision("medium")
        return right(x, w)

    return function


def _leaves_thread(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        threading.Thread(target=time.sleep, args=(3.0,), daemon=True).start()
        return right(x, w)

    return function


def _finishes_later(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)

    def function(x: Any, w: Any) -> Any:
        found = right(x, w)
        out = found.clone()

        def later() -> None:
            time.sleep(0.005)
            out[..., 0] = out[..., 0] + 0.0
            out.mul_(1.0001)

        threading.Thread(target=later, daemon=True).start()
        return out

    return function


def _side_stream(torch: Any, problem: SelfTestProblem) -> Function:
    right = honest(torch, problem)
    stream: list[Any] = []

    def function(x: Any, w: Any) -> Any:
        stream.append(stream[0] if stream else torch.cuda.Stream())
        with torch.cuda.stream(stream[0]):
            return right(x, w)

    return function


CONDUCT_CHEATS: tuple[Cheat, ...] = (
    Cheat("patches the timer", _patches_timer, reasons(Reason.PATCHED), undo=_unpatch_timer),
    Cheat("patches the check", _patches_check, reasons(Reason.PATCHED), undo=_unpatch_check),
    Cheat(
        "patches a tensor method", _patches_tensor, reasons(Reason.PATCHED), undo=_unpatch_tensor
    ),
    Cheat("falls back to the baseline", _falls_back, reasons(Reason.BASELINE_IN_DISGUISE)),
    Cheat("calls the baseline", _calls_baseline, reasons(Reason.BASELINE_IN_DISGUISE)),
    Cheat("adds nothing to the baseline", _adds_nothing, reasons(Reason.BASELINE_IN_DISGUISE)),
    Cheat(
        "spells the baseline otherwise",
        _spells_it_otherwise,
        reasons(Reason.BASELINE_IN_DISGUISE),
    ),
    Cheat(  # on a GPU, another thread launches on a stream of its own
        "calls the baseline in a thread",
        _in_a_thread,
        reasons(Reason.BASELINE_IN_DISGUISE, Reason.SIDE_STREAM),
    ),
    Cheat("edits the reference", _edits_reference, reasons(Reason.PATCHED), undo=_unedit_reference),
    Cheat("changes the default dtype", _changes_dtype, reasons(Reason.CHANGES_STATE)),
    Cheat("changes matmul precision", _changes_flags, reasons(Reason.CHANGES_STATE)),
    Cheat("leaves a thread", _leaves_thread, reasons(Reason.KEEPS_RUNNING)),
    Cheat("finishes later", _finishes_later, reasons(Reason.KEEPS_RUNNING)),
    Cheat(
        "leaves work on a side stream",
        _side_stream,
        reasons(Reason.SIDE_STREAM),
        device="cuda",
    ),
)
