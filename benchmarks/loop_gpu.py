"""The loop's parts on a GPU: the judge's self-test, faults in workers, dispatch; a table last.

    python benchmarks/loop_gpu.py FOLDER [--device cuda:0] [--more TEST ...]

Some of it must have the GPU to itself: the self-test sees work on the default stream by the time
between two events, and the tests of memory take all there is. The rest runs side by side. JUnit
XML, JSON and what each step printed go to FOLDER. The status is 0 where all ran and passed: a test
that was skipped has shown nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
FAULTS = "tests/execution/test_faults_gpu.py"
DISPATCH = "tests/api/test_dispatch_gpu.py"
FOLDERS = ("tests/execution", "tests/validation", "tests/optimizer")
LONGEST_S = 300.0
"""A step that takes longer is ended, with all it started."""
VERSIONS = "import torch; print(torch.__version__); print(torch.cuda.get_device_name(0))"


@dataclass(frozen=True)
class Step:
    name: str
    command: tuple[str, ...]
    xml: Path | None
    """Where its JUnit XML goes; `None` = it prints JSON."""


@dataclass
class Result:
    name: str
    seconds: float
    status: int | None
    """Exit status; `None` = it was ended."""
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.status == 0 and self.passed > 0 and not self.failed and not self.skipped


def pytest_step(folder: Path, name: str, files: Sequence[str], *options: str) -> Step:
    xml = folder / f"{name}.xml"
    command = (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")
    return Step(name, (*command, f"--junitxml={xml}", "--durations=8", *options, *files), xml)


def steps(folder: Path, device: str, more: Sequence[str]) -> tuple[list[Step], list[Step]]:
    """What needs the GPU to itself, and what does not."""
    judge = (sys.executable, "-m", "kernel_compass", "validate", "--self-test")
    alone = [
        Step("self_test", (*judge, "--device", device, "--json"), None),
        pytest_step(folder, "faults_of_memory", [FAULTS], "-k", "memory"),
    ]
    if more:
        alone.append(pytest_step(folder, "more", more))
    together = [
        pytest_step(folder, "faults", [FAULTS], "-k", "not memory"),
        pytest_step(folder, "dispatch", [DISPATCH]),
    ]
    others = [name for name in gpu_tests() if name not in (FAULTS, *more)]
    if others:
        together.append(pytest_step(folder, "others", others))
    return alone, together


def gpu_tests() -> list[str]:
    """Files of the loop's parts that hold tests for a GPU."""
    files = [path for name in FOLDERS for path in sorted((ROOT / name).rglob("test_*.py"))]
    return [str(path.relative_to(ROOT)) for path in files if "mark.gpu" in path.read_text()]


def run(step: Step, folder: Path) -> Result:
    path = os.pathsep.join(filter(None, ["src", os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "KERNEL_COMPASS_REQUIRE_GPU": "1"}
    said, log = folder / f"{step.name}.json", folder / f"{step.name}.log"
    start = time.monotonic()
    with log.open("wb") as errors, said.open("wb") if step.xml is None else errors as output:
        process = subprocess.Popen(
            step.command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own group, and not reaped yet
            process.wait()
            status = None
    result = Result(step.name, time.monotonic() - start, status)
    if step.xml is None:
        read_self_test(said, result)
    else:
        read_junit(step.xml, result)
    return result


def read_self_test(path: Path, result: Result) -> None:
    try:
        found = json.loads(path.read_text())
    except ValueError:  # it said in its log why it has no answer
        result.failed.append("no answer")
        return
    result.passed = sum(one["caught"] for one in found["results"])
    result.failed += [f"{o['name']}: {o['found']}" for o in found["results"] if not o["caught"]]
    result.skipped += found["not_staged"]
    if found["honest_rejected"]:
        result.failed.append(f"the honest candidate: {found['honest_rejected']}")


def read_junit(path: Path, result: Result) -> None:
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        result.failed.append("no report")
        return
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            result.failed.append(str(case.get("name")))
        elif "skipped" in kinds:
            result.skipped.append(str(case.get("name")))
        else:
            result.passed += 1


def versions() -> list[str]:
    """Of torch, and the GPU's name."""
    said = subprocess.run(
        [sys.executable, "-c", VERSIONS], capture_output=True, text=True, check=False
    )
    return said.stdout.split("\n")[:2]


def table(results: Sequence[Result], seconds: float) -> str:
    lines = [f"{'step':18}{'seconds':>8}{'status':>8}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    for one in results:
        status = "ended" if one.status is None else str(one.status)
        counts = f"{one.passed:8}{len(one.failed):8}{len(one.skipped):9}"
        lines.append(f"{one.name:18}{one.seconds:8.1f}{status:>8}{counts}")
        lines += [f"    failed: {name}" for name in one.failed]
        lines += [f"    skipped: {name}" for name in one.skipped]
    lines.append(f"{seconds:.0f} s; {'all passed' if all(r.good for r in results) else 'NOT ALL'}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--more", nargs="*", default=[], help="other tests, run alone")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    alone, together = steps(folder, given.device, given.more)
    for old in (*folder.glob("*.xml"), *folder.glob("*.json"), *folder.glob("*.log")):
        old.unlink()
    start = time.monotonic()
    results = [run(step, folder) for step in alone]
    with ThreadPoolExecutor(len(together)) as pool:
        results += pool.map(lambda step: run(step, folder), together)
    seconds = time.monotonic() - start
    document = {
        "versions": versions(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": seconds,
        "steps": [{**asdict(one), "good": one.good} for one in results],
    }
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
    print(table(results, seconds))
    return 0 if all(one.good for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
