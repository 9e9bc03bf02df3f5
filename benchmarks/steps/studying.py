"""A study of one program: begun, gone on with, replayed; what it brought beside what was foretold.

All that is known lies in one folder a program: its ledger, its table, its recording, `result.json`.
Whatever is there is not done again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps import predicting
from steps.formulas import BUDGETS

from kernel_compass import api
from kernel_compass.api.step_optimizing import optimize_step, resume_step
from kernel_compass.api.step_requests import StepAsked
from kernel_compass.codec.canonical import plain
from kernel_compass.records.loop import LoopEvent
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.step_loop import StepOptions
from kernel_compass.records.step_program import Program
from kernel_compass.records.step_study import StepStudy
from kernel_compass.records.study import RecordedStudy, StudyLimits, StudyState
from kernel_compass.report.replays import replay_fields

CONFIRM_MINUTES = 2.5
"""What confirming in five processes, and replaying, take of the minutes of a call."""
LEAST_MINUTES = 0.5
HALF = 0.5
WIDE = 16
"""Bits of weights as they are."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """What is studied, and where it is kept."""

    program: Program
    folder: Path
    budget_pct: float
    minutes: float
    device: str = "cuda"
    trials: int | None = None
    options: StepOptions = field(default_factory=StepOptions)
    product_minutes: float = 1.5
    """Of the study of one product."""
    formats: tuple[str, ...] = ()
    """Of products; none = all."""

    @property
    def foretold_pct(self) -> float:
        """The budget at which what was foretold is of these formats: without weights of 8 bits
        what they would have saved was not to be had."""
        bits = [NumberFormat.parse(one).weight.bits for one in self.formats]
        return min(self.budget_pct, BUDGETS[0]) if bits and min(bits) == WIDE else self.budget_pct

    @property
    def table(self) -> Path:
        return self.folder / "compass.json"

    @property
    def ledger(self) -> Path:
        return self.folder / "study"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"


def studied(run: Run, name: str, say: Say) -> dict[str, Any]:
    """Study it, or go on; replay what was accepted; keep the result.

    Args:
        run: what is asked for.
        name: of the program in `predictions.json`, where it is in there.
        say: told in a line.
    """
    if run.result.exists():
        known: dict[str, Any] = json.loads(run.result.read_text())
        if known["finished"] and known["replay"] is not None:
            say("known")
            return known
    began = time.monotonic()
    recorded = _study(run, say)
    minutes_left = run.minutes - (time.monotonic() - began) / 60
    step = recorded.step or StepStudy()
    finished = recorded.study.state is StudyState.FINISHED
    replay: dict[str, Any] | None = None
    if not step.entries:
        replay = {"holds": True, "claims": []}
    elif minutes_left > 0:
        replay = replay_fields(api.replay_study(str(run.ledger), tell=say))
    device = recorded.study.environment.device.name
    foretold = predicting.read(name, device, run.program.arguments)
    found = {
        "program": run.program.target.rpartition("/")[2],
        "budget_pct": run.budget_pct,
        "finished": finished,
        "seconds": round(time.monotonic() - began, 1),
        **({"formats": list(run.formats)} if run.formats else {}),
        **summed(step, run.foretold_pct, foretold),
        "replay": replay,
        "environment": plain(recorded.study.environment),
    }
    run.result.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _study(run: Run, say: Say) -> RecordedStudy:
    run.folder.mkdir(parents=True, exist_ok=True)

    def tell(event: LoopEvent) -> None:
        say(f"{event.stage.value}: {event.text}")

    if run.ledger.exists():
        recorded = api.study(str(run.ledger))
        if recorded.study.state is not StudyState.FINISHED:
            recorded = resume_step(str(run.ledger), tell).recorded
    else:
        minutes = max(run.minutes - CONFIRM_MINUTES, LEAST_MINUTES)
        limits = StudyLimits(minutes, run.trials)
        asked = StepAsked(
            run.budget_pct,
            limits,
            run.device,
            product_minutes=run.product_minutes,
            options=run.options,
            formats=run.formats,
        )
        record = run.folder / "recording.json.gz"
        name = run.folder.name
        recorded = optimize_step(run.program, asked, tell, run.ledger, record, name).recorded
    if recorded.step is not None and recorded.step.entries and not run.table.exists():
        api.apply_study(str(run.ledger), run.table)
    return recorded


def summed(
    step: StepStudy, budget_pct: float, foretold: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a study came to, beside what was foretold."""
    final = step.final
    accepted = final is not None and final.accepted and final.speedup is not None
    obtained = final.speedup.estimate if accepted and final and final.speedup else 1.0
    predicted = None if foretold is None else at_budget(foretold, budget_pct)
    return {
        "step_us": step.step_us,
        "before_us": final.before_us if final else None,
        "after_us": final.after_us if final else None,
        "accepted": accepted,
        "obtained": obtained,
        "interval": plain(final.speedup) if final and final.speedup else None,
        "detail": final.detail if final else "nothing was kept",
        "predicted": predicted,
        "part_obtained": None if predicted is None else part_of(obtained, predicted["ratio"]),
        "reason": (foretold or {}).get("reason", ""),
        "trials": [
            {
                "change": one.proposal.action.text,
                "reason": one.reason and one.reason.value,
                "detail": one.detail,
                "foretold_us": one.proposal.saves_us,
                "saved_us": one.saved_us,
                "speedup": one.speedup and plain(one.speedup),
            }
            for one in step.steps
        ],
        "passed_over": [plain(one) for one in step.passed_over],
        "not_handled": [plain(one) for one in step.not_handled],
    }


def at_budget(foretold: Mapping[str, Any], budget_pct: float) -> dict[str, Any]:
    """What was foretold at the largest budget that is not over the one asked for."""
    budgets = [text for text in foretold["by_budget"] if float(text) <= budget_pct]
    chosen = max(budgets, key=float) if budgets else min(foretold["by_budget"], key=float)
    found: dict[str, Any] = foretold["by_budget"][chosen]
    return found


def part_of(obtained: float, predicted: float) -> float | None:
    """Of the part of a step's time that was to be saved, what was saved; `None` = nothing was."""
    wanted = 1 - 1 / predicted
    return None if wanted < 0.005 else (1 - 1 / obtained) / wanted


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Results in a line each, with the changes that were kept."""
    lines = [f"{'program':<28}{'budget':>7}{'foretold':>10}{'obtained':>10}{'part':>7}  replayed"]
    for one in rows:
        predicted, part = one["predicted"], one["part_obtained"]
        held = _held(one["replay"])
        lines.append(
            f"{one['program'][:27]:<28}{one['budget_pct']:>6g}%"
            f"{'-' if predicted is None else format(predicted['ratio'], '.2f') + 'x':>10}"
            f"{one['obtained']:>9.3f}x{'-' if part is None else format(part, '.0%'):>7}  {held}"
        )
        if one.get("formats"):
            lines.append(f"  products in {', '.join(one['formats'])} alone")
        kept = [t for t in one["trials"] if t["reason"] is None]
        lines += [f"  kept: {t['change']} ({_us(t)})" for t in kept]
        if part is not None and part < HALF:
            lines += [f"  not: {t['change']}: {t['reason']}" for t in one["trials"] if t["reason"]]
        lines += [f"  {one['reason']}"] if one["reason"] else []
    return "\n".join(lines)


def _held(replay: Mapping[str, Any] | None) -> str:
    if replay is None:
        return "not yet"
    if not replay["claims"]:
        return "untouched"
    return "holds" if replay["holds"] else "DOES NOT HOLD"


def _us(trial: Mapping[str, Any]) -> str:
    both = (trial["foretold_us"], trial["saved_us"])
    words = ["not known" if one is None else f"{one:.0f} us" for one in both]
    return f"foretold {words[0]}, saved {words[1]}"
