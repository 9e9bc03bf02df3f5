"""What the loop rests on, on a real GPU: faults that workers survive, the judge, dispatch.

    python benchmarks/loop_gpu.py RESULTS [--hold-out]

Runs the judge's self-test on `cuda:0`, and all tests marked `gpu` of `tests/execution`,
`tests/validation`, `tests/optimizer` and of dispatch, side by side where none disturbs another:
first the judge alone, as it sees work on the default stream by the time between two events; then
dispatch and the gates; then the faults alone, as they take all memory and hold the GPU with kernels
that do not end; with `--hold-out` then the comparison in fresh processes, as it times.

Into RESULTS go JUnit XML of each part of tests, `self_test.json`, `loop_gpu.json` (all together,
with the machine) and `loop_gpu.log`; the last lines printed are a table. The exit code is 0 where
every part ran to its end within its time, at least one test each, with none failed or skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = "tests/execution/test_faults_gpu.py"
HOLD_OUT = "tests/api/test_comparing_gpu.py"
FOLDERS = ("tests/execution", "tests/validation", "tests/optimizer")
DISPATCH = "tests/api/test_dispatch*_gpu.py"
SELF_TEST = "self-test"
MACHINE = """
import json, sys, torch, triton
p = torch.cuda.get_device_properties(0)
print(json.dumps({"gpu": p.name, "capability": f"{p.major}.{p.minor}", "torch": torch.__version__,
                  "cuda": torch.version.cuda, "triton": triton.__version__,
                  "python": sys.version.split()[0]}))
"""


@dataclass
class Part:
    """Something that runs in a process of its own, and what came of it."""

    name: str
    command: list[str]
    limit_s: float
    seconds: float = 0.0
    exit_code: int | None = None
    """`None` = it was killed when its time was over."""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all of it ran and passed."""
        return self.exit_code == 0 and self.passed > 0 and not (self.failed or self.skipped)


def main() -> int:
    """Run what is asked for; 0 = all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a folder; made where it is missing")
    parser.add_argument("--hold-out", action="store_true", help="also compare in fresh processes")
    arguments = parser.parse_args()
    folder = arguments.results.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    stages = stages_of(folder, arguments.hold_out)
    with (folder / "loop_gpu.log").open("wb") as log:
        for stage in stages:
            run_together(stage, folder, log)
    parts = [part for stage in stages for part in stage]
    write(folder, parts, time.monotonic() - start)
    return 0 if all(part.is_good for part in parts) else 1


def stages_of(folder: Path, with_hold_out: bool) -> list[list[Part]]:
    """The parts: those of one stage run side by side, the stages one after the other."""
    others = [name for one in FOLDERS for name in marked_files(one) if name != FAULTS]
    dispatch = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob(DISPATCH))
    judge = [
        sys.executable, "-m", "kernel_compass", "validate", "--self-test", "--device", "cuda:0",
        "--json",
    ]  # fmt: skip
    stages = [
        [Part(SELF_TEST, judge, 150.0)],
        [
            tests("dispatch", folder, dispatch, 150.0),
            tests("validation", folder, others, 120.0),
        ],
        [tests("faults", folder, [FAULTS], 240.0)],
    ]
    if with_hold_out:
        stages.append([tests("hold-out", folder, [HOLD_OUT], 120.0)])
    return stages


def marked_files(folder: str) -> list[str]:
    """Files with tests that need a GPU: the others may need what this machine lacks."""
    files = sorted((ROOT / folder).rglob("test_*.py"))
    return [str(p.relative_to(ROOT)) for p in files if "mark.gpu" in p.read_text("utf-8")]


def tests(name: str, folder: Path, files: list[str], limit_s: float) -> Part:
    """A part that is pytest over some files; those that are gone fail there."""
    command = [
        sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "--durations=10",
        f"--junitxml={folder / name}.xml", *files,
    ]  # fmt: skip
    return Part(name, command, limit_s)


def run_together(parts: list[Part], folder: Path, log: object) -> None:
    """Start all of them, and end what takes longer than it may."""
    begun, running = time.monotonic(), {}
    for part in parts:
        said = (folder / f"{part.name}.out").open("w+b")
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=said,
            stderr=None if part.name == SELF_TEST else subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        running[part.name] = (part, process, said)
    while running:
        for name, (part, process, said) in list(running.items()):
            part.seconds = time.monotonic() - begun
            if process.poll() is None and part.seconds < part.limit_s:
                continue
            if process.poll() is None:
                end(process)
            else:
                part.exit_code = process.returncode
            del running[name]
            finish(part, folder, said, log)
        time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupted first: what runs workers ends them then."""
    for number, patience_s in ((signal.SIGINT, 15.0), (signal.SIGKILL, 15.0)):
        os.killpg(process.pid, number)
        try:
            process.wait(patience_s)
            return
        except subprocess.TimeoutExpired:
            continue


def environment() -> dict[str, str]:
    """Ours, with this checkout first, and no test skipped for want of a GPU."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "KERNEL_COMPASS_REQUIRE_GPU": "1",
    }


def finish(part: Part, folder: Path, said: object, log: object) -> None:
    """Read what a part left, and keep what it said."""
    said.seek(0)
    output = said.read()
    said.close()
    (folder / f"{part.name}.out").unlink()
    log.write(f"==== {part.name}: {' '.join(part.command)}\n".encode() + output + b"\n")
    log.flush()
    if part.name == SELF_TEST:
        (folder / "self_test.json").write_bytes(output)
        count_cheats(part, output)
    else:
        count_tests(part, folder / f"{part.name}.xml")
    print(f"{part.name}: exit {part.exit_code} after {part.seconds:.0f} s", flush=True)


def count_cheats(part: Part, output: bytes) -> None:
    """From the self-test's JSON."""
    try:
        found = json.loads(output)
    except ValueError:
        part.failed, said = 1, output.decode("utf-8", "replace")[-300:]
        part.failures.append(f"no JSON: {said}")
        return
    part.passed = sum(one["caught"] for one in found["results"])
    part.skipped = len(found["not_staged"])
    missed = [one for one in found["results"] if not one["caught"]]
    part.failures = [f"{one['name']}: {one['found']}: {one['detail']}" for one in missed]
    if found["honest_rejected"]:
        part.failures.append(f"the honest one: {found['honest_rejected']}")
    part.failed = len(part.failures)


def count_tests(part: Part, file: Path) -> None:
    """From JUnit XML; without it pytest did not come to its end."""
    if not file.is_file():
        part.failed = 1
        part.failures.append("no JUnit XML")
        return
    for case in ElementTree.parse(file).iter("testcase"):
        kinds = {child.tag for child in case}
        broken = next((c for c in case if c.tag in ("failure", "error")), None)
        if broken is not None:
            part.failed += 1
            name = f"{case.get('classname')}.{case.get('name')}"
            part.failures.append(f"{name}: {(broken.get('message') or '').splitlines()[:1]}")
        elif "skipped" in kinds:
            part.skipped += 1
        else:
            part.passed += 1


def write(folder: Path, parts: list[Part], seconds: float) -> None:
    """`loop_gpu.json`, and the table."""
    asked = subprocess.run(
        [sys.executable, "-c", MACHINE], capture_output=True, text=True, check=False, timeout=60
    )
    machine = json.loads(asked.stdout) if asked.returncode == 0 else {"error": asked.stderr[-500:]}
    rows = [{**asdict(part), "good": part.is_good} for part in parts]
    document = {"machine": machine, "seconds": seconds, "parts": rows}
    (folder / "loop_gpu.json").write_text(json.dumps(document, indent=2) + "\n")
    for part in parts:
        for one in part.failures:
            print(f"{part.name}: {one[:300]}")
    print(f"\n{'part':12} {'':4} {'passed':>6} {'failed':>6} {'skipped':>7} {'seconds':>7}  exit")
    for part in parts:
        counts = f"{part.passed:6} {part.failed:6} {part.skipped:7} {part.seconds:7.0f}"
        ended = "time over" if part.exit_code is None else str(part.exit_code)
        print(f"{part.name:12} {'ok' if part.is_good else 'BAD':4} {counts}  {ended}")
    print(f"{seconds:.0f} s in all, on {json.dumps(machine)}")


if __name__ == "__main__":
    sys.exit(main())
