"""Is a candidate right, and does it do the work at every call: steps 1 to 3 of validation.

Everything happens in the candidate's own process. That stops accidents and lazy cheats; hostile
code in the same process can forge anything, so what is confirmed is confirmed in fresh ones.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.errors import KernelCompassError, shortened
from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.records.trial import Reason
from kernel_compass.validation.guards import Guarded, guard_all
from kernel_compass.validation.in_place import NEW_VALUES, REORDERINGS, scaled, silently
from kernel_compass.validation.judging import (
    Effort,
    GateFinding,
    JudgedProblem,
    Judgement,
    Machine,
    Runner,
)
from kernel_compass.validation.op_record import executes, filled_allocations, op_list, work_of
from kernel_compass.validation.outputs import all_same, flat
from kernel_compass.validation.peeking import Audit, listening
from kernel_compass.validation.sealing import Sealed
from kernel_compass.validation.watch import Found, Watch

PUBLIC_SEED = 0
"""What everybody can guess; the others are drawn when the candidate is built."""
SEEDS_TO_BE_SURE = 6
"""More draws before a candidate is said to know the public one."""
SCALES = (1.0 / 64.0, 4.0)
"""Small inputs show what is added to them; large ones what overflows."""
NAN_BYTE, ZERO_BYTE, ODD_BYTE = 0xFF, 0x00, 0x3C


class Rejected(Exception):
    """Carries what was found out of the steps."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.detail)
        self.found = found


@dataclass
class Draw:
    """Inputs with what they should give, sealed."""

    inputs: dict[str, Any]
    sealed: Sealed
    problem: JudgedProblem

    def gate(self, outputs: Sequence[Any]) -> GateFinding:
        """Whether outputs are right."""
        with self.sealed.opened() as expected:
            return self.problem.gate(outputs, expected)


def judge(
    torch: Any,
    problem: JudgedProblem,
    workload: ProblemWorkload,
    build: Callable[[], Runner],
    machine: Machine,
    watch: Watch,
    effort: Effort | None = None,
    declared_baseline: bool = False,
) -> Judgement:
    """Try a candidate on one workload.

    Args:
        torch: the module.
        problem: what is computed.
        workload: the sizes it is proposed for.
        build: makes the candidate; whatever its code does when it is loaded happens in there.
        machine: the device.
        watch: taken before any code of the candidate was loaded.
        effort: how hard to look.
        declared_baseline: it says itself that it is the library the baseline uses.
    """
    trial = _Trial(torch, problem, workload, machine, watch, effort or Effort())
    try:
        trial.draw()
        watch.also(problem=problem, machine=machine)
        runner = trial.built(build)
        trial.right(runner)
        trial.follows(runner)
        trial.repeats(runner)
        trial.works_at_every_call(runner)
        trial.keeps_inside(runner)
        trial.right_elsewhere(runner)
        trial.right_at_other_scales(runner)
        if not declared_baseline:
            trial.is_new(runner)
        trial.leaves_nothing(runner)
    except Rejected as no:
        worst = trial.found or GateFinding(None, "")
        return Judgement(
            no.found.reason,
            no.found.detail,
            worst.fidelity_error_pct,
            worst.format_error_pct,
            tuple(trial.unseen),
        )
    found = trial.found or GateFinding(None, "")
    return Judgement(
        None, found.detail, found.fidelity_error_pct, found.format_error_pct, tuple(trial.unseen)
    )


class _Trial:
    """The steps; each raises `Rejected`."""

    def __init__(
        self,
        torch: Any,
        problem: JudgedProblem,
        workload: ProblemWorkload,
        machine: Machine,
        watch: Watch,
        effort: Effort,
    ) -> None:
        self.torch = torch
        self.problem = problem
        self.workload = workload
        self.machine = machine
        self.watch = watch
        self.effort = effort
        self.unseen: list[str] = []
        self.found: GateFinding | None = None
        self.draws: list[Draw] = []
        self.sizes: list[int] = []
        self.copies: list[Any] = []
        """Of the last call's outputs, as they were when it returned."""
        self.audit = Audit()

    # what is compared with, before the candidate is there

    def draw(self) -> None:
        """Inputs of the public seed and of secret ones, and a gate that can say no."""
        seeds = [PUBLIC_SEED, *(secrets.randbits(30) + 1 for _ in range(self.effort.seeds))]
        self.draws = [self._drawn(self.workload, seed) for seed in seeds]
        with self.draws[0].sealed.opened() as expected:
            self.sizes = _sizes(self.torch, self.draws[0].inputs, expected)
            del expected
        passing: list[set[str]] = [self._controls_passed(draw) for draw in self.draws]
        always = set.intersection(*passing)
        if always:
            raise Rejected(
                Found(
                    Reason.NO_BETTER_THAN_ZEROS,
                    f"With these inputs {min(always)} would pass as the result: the problem's "
                    "inputs or its error budget cannot tell right from wrong.",
                )
            )

    def _controls_passed(self, draw: Draw) -> set[str]:
        """Names of wrong outputs that the gate takes for right."""
        with draw.sealed.opened() as expected:
            return {
                name
                for name, outputs in self.problem.controls(expected).items()
                if self.problem.gate(list(outputs), expected).reason is None
            }

    def _drawn(self, workload: ProblemWorkload, seed: int) -> Draw:
        return self._of(workload, self.problem.inputs(workload, seed))

    def _of(self, workload: ProblemWorkload, inputs: dict[str, Any]) -> Draw:
        sealed = Sealed(self.torch, self.problem.expected(workload, inputs))
        return Draw(inputs, sealed, self.problem)

    # 1 builds

    def built(self, build: Callable[[], Runner]) -> Runner:
        """The candidate, and whether loading it left all else alone."""
        try:
            runner = build()
        except KernelCompassError as error:
            raise Rejected(Found(Reason.NOT_SUPPORTED, str(error))) from error
        except MemoryError as error:
            raise Rejected(Found(Reason.OUT_OF_MEMORY, _said(error))) from error
        except Exception as error:
            raise Rejected(Found(Reason.BUILD_FAILED, _said(error))) from error
        self._left_alone()
        return runner

    # 2 correct

    def right(self, runner: Runner) -> None:
        """The public draw, then secret ones of the same sizes."""
        first, results = None, []
        for index, draw in enumerate(self.draws):
            given, guards = guard_all(self.torch, draw.inputs, NAN_BYTE)
            outputs = self._called(runner, given)
            copies = self.copies
            self._untouched(draw, given, guards)
            finding = draw.gate(outputs)
            if finding.reason is None:
                self._of_its_own(draw, given, outputs)
            if finding.reason is not None:
                self._name_wrong(runner, index, draw, given, copies, finding)
            self._still(outputs, copies)
            results.append((outputs, copies))
            if first is None:
                first = finding
            self.found = _worse(self.found, finding)
        for outputs, copies in results[:-1]:
            if not all_same(self.torch, outputs, copies):
                raise Rejected(
                    Found(
                        Reason.STALE_RESULT,
                        "A later call overwrote the result of an earlier one: it hands out one "
                        "buffer again and again.",
                    )
                )

    def _name_wrong(
        self,
        runner: Runner,
        index: int,
        draw: Draw,
        at_first: dict[str, Any],
        outputs: list[Any],
        finding: GateFinding,
    ) -> None:
        """Why a result is wrong, where one of the known ways explains it."""
        for earlier in self.draws[:index]:
            if earlier.gate(outputs).reason is None:
                raise Rejected(
                    Found(
                        Reason.STALE_RESULT,
                        "With new inputs it returned the result of earlier ones.",
                    )
                )
        given, _ = guard_all(self.torch, draw.inputs, ZERO_BYTE)
        again = self._called(runner, given)
        if draw.gate(again).reason is None:
            given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
            third = self._called(runner, given)
            if draw.gate(third).reason is None:
                there = [draw.gate(self._called(runner, at_first)).reason for _ in range(3)]
                if None not in there:
                    raise Rejected(
                        Found(
                            Reason.CACHES_BY_IDENTITY,
                            "Right for copies of its operands, wrong at addresses that held others "
                            f"before: {finding.detail}",
                        )
                    )
                raise Rejected(
                    Found(Reason.NOT_REPEATABLE, f"Wrong once and right the next: {finding.detail}")
                )
            if self._leaves_gaps(runner, draw):
                raise Rejected(
                    Found(
                        Reason.PARTIAL_RESULT,
                        f"Part of the output was never written: {finding.detail}",
                    )
                )
            raise Rejected(
                Found(
                    Reason.READS_OUTSIDE,
                    f"Right with zeros beside its operands, wrong with NaN there: {finding.detail}",
                )
            )
        reason, detail = finding.reason or Reason.WRONG_RESULT, finding.detail
        if reason in (Reason.NOT_FINITE, Reason.WRONG_RESULT) and self._leaves_gaps(runner, draw):
            reason = Reason.PARTIAL_RESULT
            detail = f"Part of the output was never written: {detail}"
        elif index > 0 and reason is Reason.WRONG_RESULT and self._only_public(runner):
            reason = Reason.KNOWS_THE_SEED
            detail = f"Right for the public seed {PUBLIC_SEED} alone: {detail}"
        elif reason is Reason.WRONG_RESULT and self._is_input(draw, outputs):
            detail = f"It returned one of its inputs: {detail}"
        self.found = _worse(self.found, finding)
        raise Rejected(Found(reason, detail))

    def _leaves_gaps(self, runner: Runner, draw: Draw) -> bool:
        """Whether what it allocates and does not write comes out: NaN once, and zeros then."""
        seen = []
        for value in (float("nan"), 0.0):
            given, _ = guard_all(self.torch, draw.inputs, ZERO_BYTE)
            state = self._prepared(runner, given)
            outputs = self._ran(runner, state, given, filled_allocations(value))
            seen.append([o.clone() for o in outputs])
        pairs = [(a, b) for a, b in zip(*seen, strict=True) if a.dtype.is_floating_point]
        return any(bool((a.isnan() & ~b.isnan()).any()) for a, b in pairs)

    def _only_public(self, runner: Runner) -> bool:
        """Right for the public seed, and wrong for every other of many."""
        others = [
            self._drawn(self.workload, secrets.randbits(30) + 1) for _ in range(SEEDS_TO_BE_SURE)
        ]
        rights = []
        for draw in (*self.draws, *others):
            given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
            outputs = self._called(runner, given)
            rights.append(draw.gate(outputs).reason is None)
        return rights[0] and not any(rights[1:])

    def _is_input(self, draw: Draw, outputs: list[Any]) -> bool:
        tensors = [v for v in draw.inputs.values() if isinstance(v, self.torch.Tensor)]
        return any(all_same(self.torch, [one], [o]) for one in tensors for o in outputs)

    def _untouched(self, draw: Draw, given: dict[str, Any], guards: list[Guarded]) -> None:
        for name, value in draw.inputs.items():
            if isinstance(value, self.torch.Tensor) and not all_same(
                self.torch, [value], [given[name]]
            ):
                raise Rejected(Found(Reason.CHANGES_INPUTS, f"It wrote into its input {name!r}."))
        for one in guards:
            if not one.intact(NAN_BYTE):
                raise Rejected(Found(Reason.WRITES_OUTSIDE, "It wrote beside one of its operands."))

    def _of_its_own(self, draw: Draw, given: dict[str, Any], outputs: list[Any]) -> None:
        """Whether outputs are no memory of an input, unless the baseline's are."""
        theirs = flat(self.torch, self.problem.baseline(draw.inputs))
        if isinstance(theirs, Found) or _shared(self.torch, draw.inputs, theirs):
            return
        name = _shared(self.torch, given, outputs)
        if name:
            raise Rejected(
                Found(Reason.NO_WORK, f"It hands back memory of its input {name!r} as a result.")
            )

    def _still(self, outputs: list[Any], copies: list[Any]) -> None:
        """Whether a result stays as it was when the call returned."""
        time.sleep(self.effort.settle_s)
        if not all_same(self.torch, outputs, copies):
            raise Rejected(
                Found(Reason.KEEPS_RUNNING, "The result changed after the call had returned.")
            )

    def right_elsewhere(self, runner: Runner) -> None:
        """Other sizes that the same candidate must be right for."""
        for variant in self.problem.variants(self.workload):
            draw = self._drawn(variant, secrets.randbits(30) + 1)
            given, guards = guard_all(self.torch, draw.inputs, NAN_BYTE)
            try:
                outputs = self._called(runner, given)
            except Rejected as no:
                raise Rejected(
                    replace(no.found, reason=Reason.WRONG_ELSEWHERE, detail=_at(variant, no.found))
                ) from no
            self._untouched(draw, given, guards)
            finding = draw.gate(outputs)
            if finding.reason is not None:
                found = Found(Reason.WRONG_ELSEWHERE, finding.detail)
                raise Rejected(replace(found, detail=_at(variant, found)))

    def right_at_other_scales(self, runner: Runner) -> None:
        """Operands of another size: a wrong epsilon, a sum that overflows, a clamp show."""
        for scale in SCALES:
            inputs = dict(self.draws[1].inputs)
            for name, value in inputs.items():
                floating = isinstance(value, self.torch.Tensor) and value.dtype.is_floating_point
                if floating and name not in self.problem.held:
                    inputs[name] = scaled(value, scale)
            changed = self._of(self.workload, inputs)
            baseline, _ = guard_all(self.torch, inputs, ZERO_BYTE)
            theirs = flat(self.torch, self.problem.baseline(baseline))
            if isinstance(theirs, Found) or changed.gate(theirs).reason is not None:
                continue  # nobody is right here
            given, _ = guard_all(self.torch, inputs, NAN_BYTE)
            finding = changed.gate(self._called(runner, given))
            if finding.reason is not None:
                detail = f"With inputs {scale:g} times as large: {finding.detail}"
                raise Rejected(Found(Reason.WRONG_ELSEWHERE, detail))

    # 3 honest

    def follows(self, runner: Runner) -> None:
        """Results follow inputs that are changed in place, under the same objects and addresses."""
        draw, other = self.draws[1], self.draws[-1]
        given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
        state = self._prepared(runner, given)
        before = [o.clone() for o in self._ran(runner, state, given)]
        for change in (NEW_VALUES, *REORDERINGS):
            if not self._changed(given, other, change):
                continue
            changed = self._of(self.workload, given)
            if changed.gate(before).reason is None:
                continue  # the change does not show in the result
            outputs = self._ran(runner, state, given)
            finding = changed.gate(outputs)
            stale = all_same(self.torch, outputs, before)
            before = [o.clone() for o in outputs]
            if finding.reason is None:
                continue
            if stale:
                raise Rejected(
                    Found(
                        Reason.CACHES_BY_IDENTITY,
                        f"Its result did not follow inputs that were changed in place ({change}).",
                    )
                )
            if change == NEW_VALUES:  # the others may break what a problem's inputs keep to
                detail = f"After inputs were changed in place ({change}): {finding.detail}"
                raise Rejected(Found(finding.reason, detail))

    def _changed(self, given: dict[str, Any], other: Draw, change: str) -> bool:
        """Write other contents to the same addresses, by aliases that bump no version counter."""
        any_changed = False
        for name, tensor in given.items():
            if name in self.problem.held or not isinstance(tensor, self.torch.Tensor):
                continue
            new = other.inputs[name] if change == NEW_VALUES else REORDERINGS[change](tensor)
            if new is None or tuple(new.shape) != tuple(tensor.shape):
                continue
            any_changed |= silently(self.torch, tensor, new)
        return any_changed

    def repeats(self, runner: Runner) -> None:
        """The same inputs give the same result, call after call."""
        draw = self.draws[-1]
        given, _ = guard_all(self.torch, draw.inputs, NAN_BYTE)
        state = self._prepared(runner, given)
        first = [o.clone() for o in self._ran(runner, state, given)]
        deadline, differs = time.monotonic() + self.effort.repeat_s, 0
        self.audit.handed_over.clear()  # compilers were among them
        for count in range(self.effort.repeats):
            outputs = self._ran(runner, state, given)
            if not all_same(self.torch, outputs, first):
                finding = draw.gate(outputs)
                if finding.reason is not None:
                    raise Rejected(
                        Found(
                            Reason.NOT_REPEATABLE,
                            f"Call {count + 2} with the same inputs was wrong: {finding.detail}",
                        )
                    )
                differs += 1
            if time.monotonic() > deadline:
                break
        if self.audit.handed_over:
            raise Rejected(
                Found(
                    Reason.NO_WORK,
                    f"Every call starts another process ({self.audit.handed_over[0]}): what is "
                    "computed there takes no time here.",
                )
            )
        if differs:
            self.unseen.append(
                f"{differs} calls differ in their last bits: sums are added in no fixed order"
            )

    def works_at_every_call(self, runner: Runner) -> None:
        """The same contents again cost the same operations, and late results follow new ones."""
        inputs = self.problem.inputs(self.workload, secrets.randbits(30) + 1)
        given, _ = guard_all(self.torch, inputs, NAN_BYTE)
        state = self._prepared(runner, given)
        rest = _rest(given, self.problem)
        self._ran(runner, state, given)
        saved = []
        for _ in range(2):
            new = self.problem.inputs(self.workload, secrets.randbits(30) + 1)
            for name, value in rest.items():
                if isinstance(value, self.torch.Tensor) and new[name].shape == value.shape:
                    silently(self.torch, value, new[name])
            first, again = (work_of(self.torch, lambda: runner.run(state, rest)) for _ in "ab")
            saved.append(first - again if again <= first else None)
        late = self._of(self.workload, given)
        finding = late.gate(self._ran(runner, state, given))
        if finding.reason is not None:
            kept = self.copies
            self._changed(given, self.draws[-1], NEW_VALUES)
            if all_same(self.torch, self._ran(runner, state, given), kept):
                detail = f"From some call on it gives one result again and again: {finding.detail}"
                raise Rejected(Found(Reason.STALE_RESULT, detail))
            raise Rejected(Found(finding.reason, finding.detail))
        if all(saved):
            what = ", ".join(sorted(str(one) for one in saved[0] or ())[:3])
            raise Rejected(
                Found(
                    Reason.NO_WORK,
                    f"With contents it has seen before it leaves out {what}: it keeps results.",
                )
            )

    def keeps_inside(self, runner: Runner) -> None:
        """What lies around operands makes no difference."""
        draw, results = self.draws[1], []
        for byte in (NAN_BYTE, ZERO_BYTE, ODD_BYTE):
            given, guards = guard_all(self.torch, draw.inputs, byte)
            results.append([o.clone() for o in self._called(runner, given)])
            for one in guards:
                if not one.intact(byte):
                    raise Rejected(
                        Found(Reason.WRITES_OUTSIDE, "It wrote beside one of its operands.")
                    )
        if self._leaves_gaps(runner, draw):
            raise Rejected(
                Found(
                    Reason.PARTIAL_RESULT,
                    "Part of its output is what memory happened to hold: it is right where the "
                    "memory was.",
                )
            )
        for other in results[1:]:
            wrong = draw.gate(other)
            if not all_same(self.torch, results[0], other) and wrong.reason is not None:
                raise Rejected(
                    Found(
                        Reason.READS_OUTSIDE,
                        f"Its result depends on what lies beside its operands: {wrong.detail}",
                    )
                )

    def is_new(self, runner: Runner) -> None:
        """It does not call the baseline, nor the very operations that the baseline consists of."""
        draw = self.draws[1]
        given = dict(draw.inputs)
        state = self._prepared(runner, given)
        used = executes(
            self.problem.functions, lambda: runner.run(state, _rest(given, self.problem))
        )
        if used:
            raise Rejected(Found(Reason.BASELINE_IN_DISGUISE, f"It calls the problem's {used}."))
        theirs = op_list(self.torch, lambda: self.problem.baseline(draw.inputs))
        ours = op_list(self.torch, lambda: runner.run(state, _rest(given, self.problem)))
        if theirs is None or ours is None:
            self.unseen.append("the operations it calls could not be listed")
        elif theirs and ours == theirs:
            raise Rejected(
                Found(
                    Reason.BASELINE_IN_DISGUISE,
                    f"It calls what the baseline calls: {', '.join(o[0] for o in ours[:4])}.",
                )
            )

    def leaves_nothing(self, runner: Runner) -> None:
        """No work on other streams, no threads, no processes."""
        draw = self.draws[-1]
        given = dict(draw.inputs)
        state = self._prepared(runner, given)
        left = self.machine.leaves_side_streams(
            lambda: runner.run(state, _rest(given, self.problem))
        )
        if left:
            raise Rejected(
                Found(
                    Reason.SIDE_STREAM,
                    "It leaves work on another stream when the current one is done.",
                )
            )
        if left is None:
            self.unseen.append("work on side streams could not be looked for")
        self._left_alone()
        found = self.watch.running()
        if found:
            raise Rejected(found)

    # calls

    def _prepared(self, runner: Runner, given: dict[str, Any]) -> Any:
        held = {name: given[name] for name in self.problem.held}
        try:
            return runner.prepare(held)
        except Exception as error:
            raise _raised(error) from error

    def _called(self, runner: Runner, given: dict[str, Any]) -> list[Any]:
        return self._ran(runner, self._prepared(runner, given), given)

    def _ran(
        self,
        runner: Runner,
        state: Any,
        given: dict[str, Any],
        within: AbstractContextManager[None] | None = None,
    ) -> list[Any]:
        self.machine.poison(self.sizes)
        self.machine.synchronize()  # operands are there, on whatever stream it reads them
        try:
            with within or nullcontext(), listening(self.audit):
                outputs = runner.run(state, _rest(given, self.problem))
                self.machine.synchronize()
        except Exception as error:
            self._looked()
            raise _raised(error) from error
        found = flat(self.torch, outputs)
        if not isinstance(found, Found):
            self.copies = [one.clone() for one in found]  # at once: it may still be at work
        self._looked()
        self._left_alone()
        if isinstance(found, Found):
            raise Rejected(found)
        return found

    def _looked(self) -> None:
        if self.audit.looks:
            raise Rejected(
                Found(
                    Reason.LOOKS_AT_THE_JUDGE,
                    f"It calls {self.audit.looks[0]}: a kernel has nothing to look for there.",
                )
            )

    def _left_alone(self) -> None:
        for found in (self.watch.patched(), self.watch.changed()):
            if found:
                raise Rejected(found)


def _rest(given: dict[str, Any], problem: JudgedProblem) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in problem.held}


def _shared(torch: Any, inputs: dict[str, Any], outputs: Sequence[Any]) -> str | None:
    """The name of an input whose memory an output lies in."""
    places = {
        value.untyped_storage().data_ptr(): name
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel()
    }
    for one in outputs:
        if one.layout is torch.strided and one.numel():
            name = places.get(one.untyped_storage().data_ptr())
            if name:
                return name
    return None


def _raised(error: Exception) -> Rejected:
    text = _said(error)
    low = text.lower()
    if isinstance(error, MemoryError) or "out of memory" in low:
        return Rejected(Found(Reason.OUT_OF_MEMORY, text))
    if "illegal memory access" in low or "misaligned address" in low:
        return Rejected(Found(Reason.ILLEGAL_ACCESS, text))
    if "out of resource" in low or type(error).__name__ == "OutOfResources":
        return Rejected(Found(Reason.DOES_NOT_FIT, text))
    if type(error).__name__ in ("CompilationError", "CompileTimeAssertionFailure", "PTXASError"):
        return Rejected(Found(Reason.BUILD_FAILED, text))
    return Rejected(Found(Reason.RAISED, text))


def _said(error: BaseException) -> str:
    return shortened(f"{type(error).__name__}: {error}", 600)


def _at(variant: ProblemWorkload, found: Found) -> str:
    return f"At {variant.name}: {found.detail}"


def _worse(one: GateFinding | None, other: GateFinding) -> GateFinding:
    if one is None:
        return other
    return max(one, other, key=lambda f: f.fidelity_error_pct or 0.0)


def _sizes(torch: Any, inputs: dict[str, Any], expected: Any) -> list[int]:
    """Bytes of what outputs may take: of each input, and of the expected values where they show."""
    sizes: set[int] = set()
    for one in (*inputs.values(), *getattr(expected, "values", ())):
        if isinstance(one, torch.Tensor):
            sizes.update(one.numel() * width for width in (1, 2, 4, 8))
    return sorted(sizes)
