"""A study that was run, as a recording: its screens can be played back without the machine.

    python benchmarks/study_recording.py STUDY --output FILE.json.gz

Times are the baseline's over the speedup of the screen; what was never screened is not in it. The
loop then runs on it with `--device recorded:FILE`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from kernel_compass.api.problems import product_description
from kernel_compass.api.studies import study
from kernel_compass.codec import loop_recording
from kernel_compass.optimizer.loop_book import baseline_told
from kernel_compass.records.loop import Baseline
from kernel_compass.records.loop_recording import (
    LoopRecording,
    RecordedCandidate,
    RecordedWorkload,
)
from kernel_compass.records.trial import Outcome, Reason, Trial

METHOD = (
    "the screens of one study: each configuration judged at its own sizes and timed in turns with "
    "the baseline in one process; a time is the baseline's over the speedup"
)
NOT_TRIED = (Reason.CANNOT_PAY, Reason.REMEMBERED, Reason.CANCELLED)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("study")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    recorded = study(args.study)
    problem = product_description(recorded.study.request.source)
    workloads = []
    for workload in problem.workloads:
        baseline = baseline_told(recorded.tells, workload, recorded.study.request.regimes)
        if baseline is None:
            continue
        floors = {r.regime: r.floor_us for r in baseline.regimes if r.floor_us is not None}
        tried = [t for t in recorded.trials if t.workload == workload.name and was_screened(t)]
        candidates = tuple(candidate_of(one, baseline) for one in tried)
        workloads.append(RecordedWorkload(workload, baseline.times_us, floors, {}, candidates))
    target, machine = recorded.study.request.source.target, recorded.study.environment
    whole = LoopRecording(target, replace(machine, date=None), tuple(workloads), method=METHOD)
    args.output.write_bytes(loop_recording.encode(whole))
    count = sum(len(one.candidates) for one in workloads)
    print(f"{count} candidates of {len(workloads)} workloads: {args.output}")


def was_screened(trial: Trial) -> bool:
    timed = bool(trial.results) and not any(one.hold_out for one in trial.results)
    compiled = trial.proposal.proposer == "static"  # and not run
    untried = compiled or trial.reason in NOT_TRIED or "Gaussian" in trial.detail
    return timed or (trial.outcome is not Outcome.SCREENED and not trial.results and not untried)


def candidate_of(trial: Trial, baseline: Baseline) -> RecordedCandidate:
    one, prediction = trial.proposal.candidate, trial.proposal.prediction
    times = {r.regime: baseline.time_us(r.regime) / r.speedup.estimate for r in trial.results}
    right = trial.outcome is Outcome.SCREENED or trial.reason is Reason.NOT_FASTER
    return RecordedCandidate(
        one.implementation,
        one.format,
        one.source,
        one.config,
        times,
        None if right else trial.reason,
        trial.detail,
        trial.fidelity_error_pct,
        trial.format_error_pct,
        trial.added_bytes,
        {} if prediction is None else dict(prediction.times_us),
    )


if __name__ == "__main__":
    main()
