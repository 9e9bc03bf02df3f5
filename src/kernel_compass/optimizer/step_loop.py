"""The loop over a user's step: select, propose, try one change at a time, confirm all together.

It knows no torch, no process and no program: what it needs of them comes through `StepBench`. A
change is tried on top of those accepted so far, and kept only if the whole step got faster and its
outputs stay within the budget; after each one that is kept, where the time goes is looked at anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kernel_compass.errors import KernelCompassError
from kernel_compass.optimizer.config_descent import descended
from kernel_compass.optimizer.ledger import Ledger
from kernel_compass.optimizer.loop_setup import Tell
from kernel_compass.optimizer.step_book import WHOLE, StepBook, final_proposal
from kernel_compass.optimizer.step_doors import Actions, Offer, StepBench
from kernel_compass.optimizer.step_finals import final_of
from kernel_compass.optimizer.step_judging import (
    ended,
    is_refused,
    judged,
    line_of,
    may_change,
    predicted_of,
)
from kernel_compass.optimizer.step_planning import StepSetup, view_of
from kernel_compass.optimizer.step_proposers.products import NOT_IN_THESE, decided
from kernel_compass.optimizer.step_selecting import select_again, worked_on
from kernel_compass.records.loop import LoopEvent, Stage, Why
from kernel_compass.records.profile import Regime
from kernel_compass.records.step_action import StepProposal, StepTrial
from kernel_compass.records.step_capture import StepCapture
from kernel_compass.records.step_loop import PROCESS_FAULTS, ConfigTime, StepPlace, StepSampled
from kernel_compass.records.step_study import StepFinal, StepStudy
from kernel_compass.records.study import StudyState
from kernel_compass.records.trial import Outcome, Reason, RegimeResult, Trial
from kernel_compass.units import duration_text

_DETAILS = {
    Why.FINISHED: "every change that was proposed has been tried",
    Why.MINUTES: "the minutes are over",
    Why.TRIALS: "the trials are over",
    Why.STOPPED: "stopped by the user",
}


@dataclass(frozen=True)
class StepEnd:
    """How a run ended."""

    why: Why
    detail: str
    capture: StepCapture
    """The step as it is with what was accepted."""
    places: tuple[StepPlace, ...]
    study: StepStudy


class StepLoop:
    """One run of a study over a step, from its start or from where an earlier run was ended.

    Args:
        setup: what it is about.
        bench: the program and its machine.
        ledger: where all is recorded; what it holds already is not done again.
        clock: seconds, monotonic.
        tell: told of everything.
    """

    def __init__(
        self,
        setup: StepSetup,
        bench: StepBench,
        ledger: Ledger,
        clock: Callable[[], float],
        tell: Tell = lambda _: None,
    ) -> None:
        self._setup, self._bench, self._tell = setup, bench, tell
        self._ledger, self._book = ledger, StepBook(ledger)
        self._clock, self._began = clock, clock()
        self._kept: list[StepTrial] = []
        self._tried: dict[str, int] = {}
        """Offers by their key: how often."""
        self._closed: set[str] = set()
        """Those that are not tried again, however the step changes."""
        self._count = 0
        self._capture: StepCapture | None = None
        self._first: StepCapture | None = None
        self._places: tuple[StepPlace, ...] = ()

    def run(self) -> StepEnd:
        """Run to the end; Ctrl-C ends it in good order, with the best so far in the ledger.

        Raises:
            KernelCompassError: the program cannot be captured, before anything was tried.
        """
        try:
            why = self._run()
        except KeyboardInterrupt:
            self._book.let_go("stopped by the user")
            self._ledger.set_state(StudyState.STOPPED, _DETAILS[Why.STOPPED])
            if self._capture is None:
                raise
            return self._end(Why.STOPPED)
        except BaseException as error:
            self._book.let_go(f"the run ended by {type(error).__name__}")
            self._ledger.set_state(StudyState.STOPPED, f"{type(error).__name__}: {error}"[:500])
            raise
        self._ledger.set_state(StudyState.FINISHED, _DETAILS[why])
        return self._end(why)

    @property
    def accepted(self) -> Actions:
        """What is on now, in the order in which it was kept."""
        return tuple(one.proposal.action for one in self._kept)

    def _run(self) -> Why:
        self._look()
        why, looked = Why.FINISHED, 0
        while True:
            over = self._over()
            if over is not None:
                why = over
                break
            if looked < len(self._kept):  # fused regions change shares and groups
                looked = len(self._kept)
                self._look()
            offer = self._next()
            if offer is None:
                break
            trials = list(self._told(offer))
            if not trials or not may_change(trials[-1]):
                self._closed.add(offer.key)
            self._kept += [one for one in trials if one.reason is None]
        if self._kept:
            self._confirm()
        self._book.drop_pending()
        return why

    def _over(self) -> Why | None:
        limits = self._setup.limits
        if limits.trials is not None and self._count >= limits.trials:
            return Why.TRIALS
        if limits.minutes is not None and self._spent_s() > 60 * limits.minutes:
            return Why.MINUTES
        return None

    def _look(self) -> None:
        """Capture the step as it is now, and select."""
        try:
            found = self._bench.capture(self.accepted)
        except KernelCompassError as error:
            if self._capture is None:
                raise
            self._say(Stage.SELECT, f"its shares could not be looked at anew: {error.found}")
            found = self._capture
        self._capture = found
        self._first = self._first or found
        options, setup = self._setup.options, self._setup
        limits = (options.least_share, setup.weights_budget_pct)
        places = select_again(self._first, found, setup.groups(found), *limits)
        self._places = tuple(one for one in places if worked_on(one))
        if not self._kept and not (self._ledger.recorded.step or StepStudy()).step:
            passed = tuple(one.selected for one in places if not worked_on(one))
            self._ledger.note_step(
                StepStudy(
                    not_handled=found.not_handled,
                    passed_over=passed,
                    step_us=found.step_us,
                    step=f"{found.program}: {found.step}",
                    notes=found.notes,
                    files=found.files,
                    packages=found.packages,
                )
            )
        time = "" if found.step_us is None else f", {duration_text(found.step_us)} a step"
        self._say(Stage.SELECT, f"{found.step}{time}: {len(self._places)} places to work on")
        for place in places:
            said = "" if worked_on(place) else "passed over: "
            self._say(Stage.SELECT, f"  {said}{place.selected.workload}: {place.selected.why}")

    def _next(self) -> Offer | None:
        """The offer with most predicted gain per second of trying that was not tried yet."""
        assert self._capture is not None, "captured first"
        view = view_of(self._setup, self._capture, self._places, self.accepted)
        offers = [o for p in self._setup.proposers for o in p.propose(view)]
        kept = len(self._kept)
        fresh = [
            one
            for one in offers
            if one.key not in self._closed and self._tried.get(one.key, -1) < kept
        ]
        if not fresh:
            return None
        best = max(fresh, key=lambda one: (one.worth, one.key))
        if best.key in self._tried:  # a second time, on another step
            self._closed.add(best.key)
        self._tried[best.key] = kept
        return best

    def _told(self, offer: Offer) -> Iterator[StepTrial]:
        """What comes of an offer, each trial told as it ends."""
        for trial in self._try(offer):
            self._count += 1
            self._say(Stage.SCREEN, line_of(trial))
            yield trial

    def _try(self, offer: Offer) -> Iterator[StepTrial]:
        """Find out what the change is in full, write it down, try it; where outputs refuse it, try
        what errs less.
        """
        before = self._book.ended(self.accepted, offer.proposal.action)
        if before is not None and not is_refused(before):
            yield before
            return
        self._say(
            Stage.SCREEN, f"next: {offer.proposal.action.text}: {predicted_of(offer.proposal)}"
        )
        found, objection = self._in_full(offer)
        if objection is not None:
            trial = ended(self._book.number(), found[0].proposal, *objection)
            self._book.end(self.accepted, trial, self._step_us())
            yield trial
            return
        actions = [one.proposal.action for one in found]
        tried = [self._book.was_tried(self.accepted, one) for one in actions]
        if before is not None and all(tried):
            yield before
        for one in (one for one, known in zip(found, tried, strict=True) if not known):
            trial = self._attempted(one.proposal)
            yield trial
            if not is_refused(trial):
                return

    def _attempted(self, proposal: StepProposal) -> StepTrial:
        number = self._book.begin(proposal, self._step_us())
        found = self._bench.attempt(self.accepted, proposal.action)
        trial = judged(number, proposal, found)
        self._book.end(self.accepted, trial, self._step_us())
        return trial

    def _in_full(self, offer: Offer) -> tuple[list[Offer], tuple[Reason, str] | None]:
        """A product's implementations by a study of it alone; configurations and modes by times."""
        if offer.study is not None:
            dtype = next(
                (o.dtype for o in self._places if o.workload == offer.study and o.dtype), ""
            )
            found = self._bench.study(offer.study, dtype)
            offers = decided(offer, found, self._step_us(), self._setup.formats)
            if not offers:
                return [offer], (Reason.NOT_FASTER, found.detail or NOT_IN_THESE)
            return offers, None
        if offer.configs:
            best, objection = self._best_config(offer)
            return [best], objection
        return [offer], None

    def _best_config(self, offer: Offer) -> tuple[Offer, tuple[Reason, str] | None]:
        def times(places: tuple[int, ...]) -> Sequence[ConfigTime]:
            return self._bench.rank(self.accepted, tuple(offer.configs[i] for i in places))

        space = [one.config for one in offer.configs]
        found = descended(space, self._setup.options.configs, times)
        known = [(one.time_us, i) for i, one in found.items() if one.time_us is not None]
        if not known and offer.proposal.action in offer.configs:
            return offer, None  # its own trial says in full what is wrong
        if not known:
            said = next((one.detail for one in found.values() if one.detail), "none was timed")
            return offer, (Reason.NOT_SUPPORTED, f"no other configuration can be put in: {said}")
        time_us, index = min(known)
        proposal = replace(offer.proposal, action=offer.configs[index])
        said = f"{len(known)} of {len(found)} ran; the step took {duration_text(time_us)} with it"
        proposal = replace(proposal, evidence=(*proposal.evidence, said))
        return replace(offer, proposal=proposal), None

    def _confirm(self) -> None:
        """All that was kept beside the untouched program, in fresh processes."""
        numbers = tuple(one.number for one in self._kept)
        if self._book.final is not None and self._book.final.trials == numbers:
            return
        options = self._setup.options
        why = f"{len(self._kept)} changes together, beside the untouched program"
        number = self._book.begin_final(why)
        samples: list[StepSampled] = []
        failure = None
        for process in range(options.processes):
            found = self._bench.sample(process, self.accepted)
            self._say(Stage.FINALS, f"process {process + 1} of {options.processes}")
            if found.reason is not None or found.samples is None:
                failure = (found.reason or Reason.CANNOT_BE_TIMED, found.detail)
                break
            samples.append(found)
        final, reason = final_of(samples, failure, options)
        self._end_final(number, why, replace(final, trials=numbers), reason)

    def _end_final(self, number: int, why: str, final: StepFinal, reason: Reason | None) -> None:
        results: tuple[RegimeResult, ...] = ()
        if final.speedup is not None and final.before_us and final.after_us:
            speedup = final.speedup
            results = (
                RegimeResult(Regime.IN_SITU, final.before_us, final.after_us, speedup, True),
            )
        outcome = Outcome.ACCEPTED if final.accepted else Outcome.REJECTED
        if reason in PROCESS_FAULTS:
            outcome = Outcome.FAILED
        errors = [one.relative_pct for one in final.outputs]
        trial = Trial(
            number,
            WHOLE,
            final_proposal(why),
            outcome,
            reason,
            final.detail,
            results,
            format_error_pct=max(errors) if errors else None,
            added_bytes=final.added_bytes or None,
        )
        entries = tuple(self._setup.entry(o, final) for o in self._kept) if final.accepted else ()
        before = self._ledger.recorded.step or StepStudy()
        self._ledger.note_step(replace(before, final=final))
        self._book.end_final(trial, entries)
        self._say(Stage.FINALS, final.detail, trial)

    def _step_us(self) -> float | None:
        return None if self._capture is None else self._capture.step_us

    def _spent_s(self) -> float:
        return self._clock() - self._began

    def _end(self, why: Why) -> StepEnd:
        assert self._capture is not None, "nothing ends before it was captured"
        study = self._ledger.recorded.step or StepStudy()
        self._say(Stage.ENDED, _DETAILS[why])
        return StepEnd(why, _DETAILS[why], self._capture, self._places, study)

    def _say(self, stage: Stage, text: str, trial: Trial | None = None) -> None:
        minutes = self._setup.limits.minutes
        left = None if minutes is None else max(60 * minutes - self._spent_s(), 0.0)
        self._tell(LoopEvent(stage, text, trial, self._count, left_s=left))
