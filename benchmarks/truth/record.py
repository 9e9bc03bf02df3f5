"""Record the truth suite with ncu, twice (caches as left / flushed), into at most eight files.

Changes no GPU setting: clock-control is none throughout.
"""

from __future__ import annotations

import argparse
import datetime
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SUITE = str(HERE / "suite.py")
# Flushing the caches says nothing new about these kinds; skipped in the second capture.
SAME_WHEN_FLUSHED = ("bank", "barrier", "pipe", "divergence")
BEGAN = time.monotonic()


class Log:
    """Lines to standard output and to a file, from several threads."""

    def __init__(self, path: Path) -> None:
        self.file, self.lock = path.open("w"), threading.Lock()

    def __call__(self, text: str) -> None:
        line = f"[{time.monotonic() - BEGAN:6.1f}] {text.rstrip()}"
        with self.lock:
            print(line, flush=True)
            self.file.write(line + "\n")
            self.file.flush()


def env(tmp: Path) -> dict[str, str]:
    """The environment of all children: C locale, a shared Triton cache."""
    return os.environ | {"LC_ALL": "C", "LANG": "C", "TRITON_CACHE_DIR": str(tmp / "triton")}


def stream(cmd: Sequence[str], tmp: Path, log: Log, limit_s: float) -> tuple[int, list[str]]:
    """Run a command, log every line; after limit_s ask it to end, then end it (its group alone)."""
    log("$ " + " ".join(cmd))
    child = subprocess.Popen(
        list(cmd),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env(tmp),
        start_new_session=True,
    )

    def end(sig: signal.Signals) -> None:
        if child.poll() is None:
            log(f"past {limit_s:.0f} s: {sig.name}")
            os.killpg(child.pid, sig)

    timers = [
        threading.Timer(max(limit_s, 1), end, [signal.SIGINT]),
        threading.Timer(max(limit_s, 1) + 15, end, [signal.SIGKILL]),
    ]
    for timer in timers:
        timer.daemon = True
        timer.start()
    lines: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        lines.append(line.rstrip())
        if "==PROF== Profiling" not in line:
            log(line)
    code = child.wait()
    for timer in timers:
        timer.cancel()
    log(f"exit status {code}")
    return code, lines


def export(report: Path, page: str, out: Path, tmp: Path, log: Log) -> None:
    """Export one page as CSV, base units, C locale, and compress it."""
    cmd = ["ncu", "--import", str(report), "--page", page, "--csv", "--print-units", "base"]
    csv = tmp / (out.name + ".tmp")
    try:
        with csv.open("wb") as sink:
            done = subprocess.run(
                cmd, stdout=sink, stderr=subprocess.PIPE, env=env(tmp), check=False, timeout=150
            )
        with csv.open("rb") as source, lzma.open(out, "wb", preset=4) as sink2:
            shutil.copyfileobj(source, sink2, 1 << 20)
        log(
            f"{out.name}: {csv.stat().st_size} bytes, {out.stat().st_size} compressed, "
            f"rc {done.returncode} {done.stderr.decode(errors='replace')[-300:]}"
        )
    except Exception as error:  # one page lost is no reason to lose the others
        log(f"{out.name}: FAILED {type(error).__name__}: {error}")


def said(cmd: Sequence[str]) -> str:
    """The output of a short command, or why there is none."""
    try:
        done = subprocess.run(list(cmd), capture_output=True, text=True, check=False, timeout=60)
        return (done.stdout or done.stderr).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"n/a ({error})"


def environment() -> dict[str, Any]:
    """Versions and the machine."""
    query = "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu"
    code = "import torch, triton; print(torch.__version__, triton.__version__, torch.version.cuda)"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "gpu": said(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]),
        "gpu_fields": query,
        "ncu": said(["ncu", "--version"]).splitlines()[-1:],
        "nvcc": said(["nvcc", "--version"]).splitlines()[-2:],
        "torch_triton_cuda": said([sys.executable, "-c", code]),
        "python": sys.version,
    }


def cases_of(lines: Sequence[str]) -> list[dict[str, Any]]:
    """The suite's CASE lines, in order of execution (= order of ncu's launch ids)."""
    found = []
    for line in lines:
        if match := re.search(r'CASE (\{"case".*\})', line):
            found.append(json.loads(match[1]))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", type=Path, help="output folder (made if missing)")
    p.add_argument("--limit-s", type=float, default=420.0, help="total time")
    p.add_argument("--only", default="", metavar="REGEX")
    p.add_argument("--skip", default="", metavar="REGEX")
    p.add_argument("--no-check", action="store_true", help="skip the run without ncu")
    args = p.parse_args(argv)
    out: Path = args.out
    out.mkdir(parents=True, exist_ok=True)
    log = Log(out / "record.log")
    sys.path.insert(0, str(HERE))
    from cases import CASES

    facts: dict[str, Any] = environment()
    failures = 0

    def save() -> None:
        (out / "environment.json").write_text(json.dumps(facts, indent=1) + "\n")

    save()
    log(json.dumps(facts))
    exports: list[threading.Thread] = []
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        lib = tmp / "libtruth.so"
        base = [sys.executable, SUITE, "--lib", str(lib), "--only", args.only]
        code, _ = stream([*base, "--build-only"], tmp, log, 120)
        if code:
            log("build failed: nothing recorded")
            return 1
        skip = [args.skip] if args.skip else []
        if not args.no_check:
            limit = 0.22 * args.limit_s
            extra = ["--skip", args.skip] if args.skip else []
            _, lines = stream(
                [*base, *extra, "--check", "--stop-after-s", str(limit)], tmp, log, limit + 40
            )
            facts["check"] = cases_of(lines)
            bad = [m[1] for x in lines if (m := re.match(r"(?:FAILED|LOST) (\w+)", x))]
            facts["failed"] = sorted(set(bad))
            skip += [f"^{x}$" for x in sorted(set(bad))]
            save()
        flushed_skip = [f"^{c.name}$" for c in CASES if c.kind in SAME_WHEN_FLUSHED]
        # The reserve of 50 s is for the exports of the second capture.
        for mode, launches, share in (("none", 2, 0.64), ("all", 1, 1.0)):
            left = args.limit_s - (time.monotonic() - BEGAN) - 50
            budget = max(left * share, 20.0)
            report = tmp / f"truth_{mode}.ncu-rep"
            omit = "|".join(skip + (flushed_skip if mode == "all" else []))
            cmd = [
                "ncu",
                "--set",
                "full",
                "--import-source",
                "no",
                "--clock-control",
                "none",
                "--cache-control",
                mode,
                "--profile-from-start",
                "off",
                "--target-processes",
                "application-only",
                "-f",
                "-o",
                str(report),
                *base,
                "--launches",
                str(launches),
                "--stop-after-s",
                str(budget * 0.9),
            ]
            if omit:
                cmd += ["--skip", omit]
            code, lines = stream(cmd, tmp, log, budget + 25)
            facts[f"run_{mode}"] = cases_of(lines)
            facts[f"command_{mode}"] = cmd
            save()
            if not report.exists():
                log(f"no report for cache-control {mode} (exit status {code})")
                failures += 1
                continue
            log(f"{report.name}: {report.stat().st_size} bytes")
            for page in ("raw", "details"):
                target = out / f"truth_{mode}_{page}.csv.xz"
                thread = threading.Thread(target=export, args=(report, page, target, tmp, log))
                thread.start()
                exports.append(thread)
        for thread in exports:
            thread.join()
    facts["wall_s"] = round(time.monotonic() - BEGAN, 1)
    save()
    for path in sorted(out.iterdir()):
        log(f"{path.name}: {path.stat().st_size} bytes")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
