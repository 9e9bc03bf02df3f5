"""What is kept for the hold-out: the same for whoever spends minutes before it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from optimizer.loop_samples import COLD

from kernel_compass.optimizer.loop_budget import COUNTED_LAUNCH_S, LoopBudget
from kernel_compass.optimizer.loop_diagnosing import TRIED, Diagnosing
from kernel_compass.optimizer.proposers.findings import Findings
from kernel_compass.records.loop import LoopOptions, Why
from kernel_compass.records.study import StudyLimits
from kernel_compass.records.trial import Candidate, Outcome


def budget(now, minutes=10.0, **options):
    """With screens of 10 s behind it; `now` = a list with the clock's time."""
    found = LoopBudget(StudyLimits(minutes), LoopOptions(**options), lambda: now[0], 0.0)
    for _ in range(4):
        found.screened(10.0)
    return found


@pytest.mark.parametrize("finalists", [1, 3])
@pytest.mark.parametrize("workloads", [0, 1, 4])
def test_screens_end_when_only_what_is_kept_is_left(finalists, workloads):
    now = [0.0]
    found = budget(now, finalists=finalists, finals_share=0.1)
    kept_s = found.kept_s(workloads)
    assert kept_s == max(found.finals_s(workloads * finalists), 60.0)
    now[0] = 600 - kept_s - 1
    assert found.over(workloads) is None
    now[0] = 600 - kept_s + 1
    assert found.over(workloads) is Why.MINUTES


def work(is_left=False):
    """With a best and the screens that a diagnosis waits for."""
    best = SimpleNamespace(
        proposal=SimpleNamespace(candidate=Candidate("fast")),
        outcome=Outcome.SCREENED,
        results=(
            SimpleNamespace(regime=COLD, candidate_us=1.0, speedup=SimpleNamespace(estimate=2.0)),
        ),
        reason=None,
        number=1,
    )
    because = "nothing is left to try" if is_left else None
    return SimpleNamespace(best=best, tried=[best] * TRIED, spaces=(), left_because=because)


@pytest.mark.parametrize("left", [0, 5])
def test_counting_leaves_what_is_kept_for_all_workloads(left):
    """Those that are not worked on any more have finalists, too."""
    works = [work(), *[work(is_left=True) for _ in range(left)]]
    now = [0.0]
    options = {"finalists": 2, "counters_share": 1.0, "finals_share": 0.1}
    found = budget(now, **options)
    now[0] = 600 - found.kept_s(len(works)) - 5.0  # under what counting takes at the least
    kept = {}
    book = SimpleNamespace(answer=lambda _: None, has_finals=False, keep_answer=kept.__setitem__)
    setup = SimpleNamespace(
        options=LoopOptions(**options),
        regimes=(COLD,),
        request=SimpleNamespace(limits=StudyLimits(10.0)),
    )
    said = []
    diagnosing = Diagnosing(setup, None, book, found, works, Findings(), said.append)
    diagnosing.look([works[0]])
    assert kept == {"diagnosis": {"unavailable": "5 s would be all there is for it"}}


def test_counting_of_finalists_fits_into_what_is_left():
    """Both regimes, cold alone, none: whatever is left, counting does not go over the minutes."""
    now = [0.0]
    found = budget(now)
    both_s, cold_s = (found.counted_s(5, regimes) for regimes in (2, 1))
    assert both_s - cold_s == 10 * COUNTED_LAUNCH_S
    for left_s, regimes in [(both_s + 1, 2), (both_s - 1, 1), (cold_s - 1, 0), (0.0, 0)]:
        now[0] = 600.0 - left_s
        assert found.counts(5) == regimes
    assert budget([0.0], minutes=None).counts(5) == 2
    assert found.finals_s(5) >= both_s
