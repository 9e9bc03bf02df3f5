"""What is asked of the loop: a study from plain words, and how the loop works on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from kernel_compass.api.loop_place import RECORDED
from kernel_compass.api.problems import problem_source
from kernel_compass.api.sanitizing import find_program
from kernel_compass.errors import UsageError
from kernel_compass.optimizer.search.strategies import NAMES
from kernel_compass.records.device import CPU, SIMULATED
from kernel_compass.records.loop import LoopOptions
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime
from kernel_compass.records.study import StudyLimits, StudyRequest

BOTH = (Regime.COLD, Regime.WARM)
MOST_MINUTES = 24 * 60.0
STATIC = 16
"""Of a space on a GPU, how many of the most promising are compiled before any is screened."""
COUNTERS_SHARE = 0.1
"""Of the minutes on a GPU, what counting for a diagnosis may take."""
_LATER = ("static_share", "counters_share", "sanitize")
"""Options that studies of before do not have: theirs export to the same bytes."""


def study_request(
    target: str,
    regimes: Sequence[str] = ("cold", "warm"),
    tokens: Sequence[int] | None = None,
    tp: int | None = None,
    budget_pct: float | None = None,
    formats: Sequence[str] = (),
    minutes: float | None = None,
    trials: int | None = None,
    strategy: str = "model",
    seed: int = 0,
) -> StudyRequest:
    """What decides a study, from plain words.

    Raises:
        UsageError: one of them names nothing.
    """
    if strategy not in NAMES:
        found = f"There is no strategy {strategy!r}."
        raise UsageError(found, f"Take one of {', '.join(NAMES)}.")
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        found = f"{minutes:g} minutes cannot be spent."
        raise UsageError(found, f"Give more than 0, and {MOST_MINUTES:g} at most.")
    return StudyRequest(
        problem_source(target, tokens, tp),
        tuple(dict.fromkeys(_regime(word) for word in regimes)),
        budget_pct,
        tuple(NumberFormat.parse(word).name for word in formats),
        StudyLimits(minutes, trials),
        seed,
        strategy,
    )


def loop_options(device: str, static: int | None = None, sanitize: bool = False) -> LoopOptions:
    """How the loop works on a device, where nothing more is asked for.

    On a GPU it compiles the most promising configurations beforehand, and diagnoses by counters.

    Args:
        device: as for `optimize`.
        static: of a space, how many are compiled without being run, 0 = none; `None` = by the
            device.
        sanitize: whether finalists run under compute-sanitizer, too.

    Raises:
        UsageError: the device cannot be asked for this.
        MissingDependency: compute-sanitizer is not installed.
    """
    recorded, on_gpu = device.startswith(RECORDED), device not in (CPU, SIMULATED)
    on_gpu = on_gpu and not recorded
    if static and recorded:
        found = f"A recording compiles nothing, and {static} of a space are to be compiled."
        raise UsageError(found, "Leave --static out, or name cuda.")
    if sanitize and not on_gpu:
        raise UsageError("--sanitize looks at a GPU's memory.", "Name --device cuda:0.")
    if sanitize:
        find_program()
    by_device = STATIC if on_gpu else 0
    return LoopOptions(
        static=by_device if static is None else static,
        counters_share=COUNTERS_SHARE if on_gpu else 0.0,
        sanitize=sanitize,
    )


def kept_options(options: LoopOptions) -> dict[str, Any]:
    """What decides the study; of what came later, only what is not as it was before."""
    found = {one.name: getattr(options, one.name) for one in fields(options)}
    return {k: v for k, v in found.items() if k not in _LATER or v != getattr(LoopOptions, k)}


def _regime(word: str) -> Regime:
    found = next((regime for regime in BOTH if regime.value == word.strip().lower()), None)
    if found is None:
        raise UsageError(f"There is no regime {word!r} to win in.", "Name cold, warm, or both.")
    return found
