"""Operating characteristics of the comparison of times, by simulation.

python benchmarks/comparison_power.py                 what the rule decides, by true effect
python benchmarks/comparison_power.py --coverage      intervals against bootstraps
python benchmarks/comparison_power.py --noise FILE    noise resampled from recorded A/A pairs
python benchmarks/comparison_power.py --json          the same as JSON

CPU only; `--runs` comparisons a row, seeded.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from noise_models import MADE_UP, Noise, RecordedNoise, known

from kernel_compass.analysis.hold_out import hold_out
from kernel_compass.analysis.location import trimmed_mean
from kernel_compass.analysis.noise import noise_floor
from kernel_compass.analysis.pairing import log_ratios
from kernel_compass.analysis.sequential import SequentialComparison
from kernel_compass.analysis.statistics import speedup
from kernel_compass.records.comparison import ComparisonResult, Decision, Rule
from kernel_compass.records.measurement import PairedSamples

EFFECTS_PCT = (-3.0, 0.0, 1.0, 2.0, 2.5, 3.0, 5.0)
SEED = 20261201
Z99 = 2.5758
PROCESS_PAIRS = 200
Row = dict[str, object]


def ratio(effect_pct: float) -> float:
    """3 % faster is 1.03 times; 3 % slower is 1 / 1.03 times."""
    return 1 + effect_pct / 100 if effect_pct >= 0 else 1 / (1 - effect_pct / 100)


def part(pairs: PairedSamples, first: int, last: int) -> PairedSamples:
    return dataclasses.replace(
        pairs,
        baseline_us=pairs.baseline_us[first:last],
        candidate_us=pairs.candidate_us[first:last],
    )


def compare(noise: Noise, rule: Rule, effect: float, rng: np.random.Generator) -> ComparisonResult:
    """One sequential comparison of a candidate that is `effect` times as fast."""
    pairs, comparison, done = (
        noise.process(rng, rule.looks[-1], effect),
        SequentialComparison(rule),
        0,
    )
    while comparison.pairs_wanted:
        step = comparison.pairs_wanted
        comparison.add(part(pairs, done, done + step))
        done += step
    return comparison.result()


def naive_peeking(logs: np.ndarray, looks: Iterable[int], z: float, threshold: float) -> bool:
    """Does an ordinary interval of the mean clear the threshold at any look?"""
    clear = (logs[:n].mean() - z * logs[:n].std(ddof=1) / np.sqrt(n) > threshold for n in looks)
    return any(clear)


def fresh_processes(
    noise: Noise, rng: np.random.Generator, count: int, effect: float = 1.0
) -> list[PairedSamples]:
    return [noise.process(rng, PROCESS_PAIRS, effect, number) for number in range(count)]


# --- what is decided ------------------------------------------------------------------------


def shares(decisions: Sequence[Decision]) -> Row:
    counts = Counter(decisions)
    names = (Decision.FASTER, Decision.SLOWER, Decision.EQUIVALENT, Decision.UNDECIDED)
    return {f"{d}_pct": round(100 * counts[d] / len(decisions), 2) for d in names}


def sequential_rows(noises: dict[str, Noise], rule: Rule, runs: int, pair_ms: float) -> list[Row]:
    rows: list[Row] = []
    for name, noise in noises.items():
        for effect in EFFECTS_PCT:
            rng = np.random.default_rng(SEED)
            found = [compare(noise, rule, ratio(effect), rng) for _ in range(runs)]
            pairs = np.array([result.pairs for result in found])
            row: Row = {"noise": name, "true_effect_pct": effect}
            row |= shares([result.decision for result in found])
            row |= {"pairs_mean": round(float(pairs.mean())), "pairs_max": int(pairs.max())}
            row |= {"gpu_s_max": round(float(pairs.max()) * pair_ms / 1e3, 2)}
            rows.append(row)
    return rows


def hold_out_rows(noises: dict[str, Noise], rule: Rule, runs: int) -> list[Row]:
    rows: list[Row] = []
    for name, noise in noises.items():
        for count in (5, 8):
            for effect in EFFECTS_PCT:
                rng = np.random.default_rng(SEED)
                found = [
                    hold_out(fresh_processes(noise, rng, count, ratio(effect)), rule)
                    for _ in range(runs)
                ]
                least = 1 / (1 + rule.noninferiority_margin)
                passed = sum(result.speedup.low > least for result in found)
                row: Row = {"noise": name, "processes": count, "true_effect_pct": effect}
                row |= shares([result.decision for result in found])
                rows.append(row | {"not_inferior_pct": round(100 * passed / runs, 2)})
    return rows


def noise_floor_rows(noises: dict[str, Noise]) -> list[Row]:
    """Of the recordings themselves."""
    rows: list[Row] = []
    for name, noise in noises.items():
        if isinstance(noise, RecordedNoise):
            floor = noise_floor(noise.samples())
            for where in ("within_process_pct", "between_processes_pct"):
                found = dataclasses.asdict(getattr(floor, where))
                kept: Row = {key: round(found[key], 3) for key in ("value", "low", "high")}
                kept |= {"source": found["source"]}
                rows.append(
                    {"noise": name, "kernel": noise.kernel, "standard deviation": where} | kept
                )
    return rows


def peeking_rows(noises: dict[str, Noise], rule: Rule, runs: int) -> list[Row]:
    """Wrongly "faster" at a true effect of exactly the minimum, where errors are most likely."""
    rows: list[Row] = []
    every_ten = range(20, rule.looks[-1] + 1, 10)
    for name, noise in noises.items():
        still = dataclasses.replace(noise, placement_pct=0.0)
        rng, threshold = np.random.default_rng(SEED), np.log1p(rule.minimum_effect)
        wrong = Counter[str]()
        for _ in range(runs):
            pairs = still.process(rng, rule.looks[-1], 1 + rule.minimum_effect)
            logs = log_ratios(pairs)
            wrong["naive, last look only"] += naive_peeking(logs, rule.looks[-1:], Z99, threshold)
            wrong["naive, at our looks"] += naive_peeking(logs, rule.looks, Z99, threshold)
            wrong["naive, every 10 pairs"] += naive_peeking(logs, every_ten, Z99, threshold)
        for _ in range(runs):
            found = compare(still, rule, 1 + rule.minimum_effect, rng)
            wrong["ours"] += found.decision is Decision.FASTER
        rows.append(
            {"noise": name, "nominal_pct": 50 * rule.alpha}
            | {f"{who} (%)": round(100 * n / runs, 2) for who, n in wrong.items()}
        )
    return rows


# --- intervals ------------------------------------------------------------------------------


def bootstrap(
    logs: np.ndarray, block: int, rng: np.random.Generator, resamples: int = 500
) -> tuple[float, float]:
    """95 % percentile interval of the trimmed mean, blocks of successive pairs (circular)."""
    starts = rng.integers(0, logs.size, (resamples, -(-logs.size // block)))
    at = (starts[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, : logs.size]
    ordered = np.sort(logs[at % logs.size], axis=1)
    cut = int(0.2 * logs.size)
    low, high = np.quantile(ordered[:, cut : logs.size - cut].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def cluster_bootstrap(
    processes: list[np.ndarray], rng: np.random.Generator, resamples: int = 200
) -> tuple[float, float]:
    """95 % percentile interval: processes drawn, then pairs of each."""
    means = []
    for _ in range(resamples):
        drawn = [processes[i] for i in rng.integers(0, len(processes), len(processes))]
        means.append(np.mean([trimmed_mean(rng.choice(logs, logs.size)) for logs in drawn]))
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def coverage_rows(noises: dict[str, Noise], runs: int) -> list[Row]:
    rows: list[Row] = []
    for name, noise in noises.items():
        still = dataclasses.replace(noise, placement_pct=0.0)
        for n in (20, 50, 200, 800):
            rng = np.random.default_rng(SEED)
            block = round(1.5 * n ** (1 / 3))
            methods: dict[str, Callable[[np.ndarray], tuple[float, float]]] = {
                "pair bootstrap": lambda logs, rng=rng: bootstrap(logs, 1, rng),
                "block bootstrap": lambda logs, rng=rng, b=block: bootstrap(logs, b, rng),
            }
            inside: Counter[str] = Counter()
            for _ in range(runs):
                pairs = still.process(rng, n)
                found = speedup(pairs, 0.95)
                inside["ours"] += found.low < 1 < found.high
                for method, interval in methods.items():
                    low, high = interval(log_ratios(pairs))
                    inside[method] += low < 0 < high
            rows.append(
                {"noise": name, "pairs": n}
                | {f"{m} (%)": round(100 * c / runs, 1) for m, c in inside.items()}
            )
    return rows


def hold_out_coverage_rows(noises: dict[str, Noise], rule: Rule, runs: int) -> list[Row]:
    rows: list[Row] = []
    for name, noise in noises.items():
        for count in (5, 8):
            rng = np.random.default_rng(SEED)
            inside: Counter[str] = Counter()
            for _ in range(runs):
                samples = fresh_processes(noise, rng, count)
                found = hold_out(samples, rule).speedup
                inside["Student's t over processes (ours)"] += found.low < 1 < found.high
                low, high = cluster_bootstrap([log_ratios(s) for s in samples], rng)
                inside["cluster bootstrap"] += low < 0 < high
            rows.append(
                {"noise": name, "processes": count}
                | {f"{m} (%)": round(100 * c / runs, 1) for m, c in inside.items()}
            )
    return rows


# --- output ---------------------------------------------------------------------------------


def table(title: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    heads = list(rows[0])
    lines = [f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(row[h]) for h in heads) + " |" for row in rows]
    return "\n".join([*lines, ""])


def sections(args: argparse.Namespace) -> dict[str, list[Row]]:
    noises = {"recorded": RecordedNoise(args.noise)} if args.noise else known()
    made_up = {name: noise for name, noise in noises.items() if name in MADE_UP}
    rule, runs = Rule(), args.runs
    if args.coverage:  # needs a truth that only made-up noise has
        made = {
            "95 % intervals of one process that hold the truth": lambda: coverage_rows(
                made_up, runs
            ),
            "95 % intervals of a hold-out that hold the truth": lambda: hold_out_coverage_rows(
                made_up, rule, runs
            ),
        }
    else:
        made = {
            "Sequential comparison in one process": lambda: sequential_rows(
                noises, rule, runs, args.pair_ms
            ),
            "Noise floor of the recording": lambda: noise_floor_rows(noises),
            "Hold-out": lambda: hold_out_rows(noises, rule, runs),
            "Wrongly faster at a true effect of exactly the minimum": lambda: peeking_rows(
                made_up, rule, runs
            ),
        }
    only = (args.only or "").lower()
    return {title: rows() for title, rows in made.items() if only in title.lower()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--noise", type=Path, help="recorded A/A pairs (JSON)")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--pair-ms", type=float, default=2.4, help="GPU time of one pair")
    parser.add_argument("--only", metavar="WORD", help="tables with this in their title: hold-out")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.coverage and args.noise:
        parser.error("coverage needs a known truth, which only made-up noise has: drop --noise")
    found = sections(args)
    if args.json:
        rule = dataclasses.asdict(Rule())
        print(json.dumps({"runs": args.runs, "seed": SEED, "rule": rule} | found, indent=1))
        return
    for title, rows in found.items():
        print(table(title, rows))


if __name__ == "__main__":
    main()
