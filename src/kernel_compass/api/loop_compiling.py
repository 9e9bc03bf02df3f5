"""The most promising configurations of many spaces compiled for this GPU, none of them run.

The compilers are processes of a program of their own: what they leave behind ends with it, and the
worker that asked stays as it was. They write to the worker's Triton cache, so that what is screened
afterwards is found there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import kernel_compass
from kernel_compass.api.file_compiling import NO_KERNEL, FileRequest
from kernel_compass.api.loop_spaces import target_named
from kernel_compass.api.static_pruning import Compilable, Point, StaticRequest, compile_points
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import KernelCompassError
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.optimizer.search.prune import LIMITS
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.problem import ProblemSource, ProblemWorkload

OWN = "own"
"""The provider whose kernels are Triton's and Gluon's, launched in a way that can be compiled."""
INTERPRETING = "TRITON_INTERPRET"
"""Where it is set, kernels are interpreted and cannot be compiled: a whole process' matter."""
SPARED_CORES = 2
GRACE_S = 20.0
"""Beyond the budget, for the program to start and to end."""

Tell = Callable[[Mapping[str, Any]], None]


def compile_task(arguments: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """In a worker: compile configurations of spaces for its GPU.

    Args:
        arguments: those of all tasks, `spaces` (each `workload`, `implementation`, `format`,
            `configs`, the most promising first; without a format it is a candidate of the
            problem's file), `budget_s`, `timeout_s` (of one).
        tell: told when it begins.

    Returns:
        `capability`, and `compiled`: of each space what became of its configurations, or `None`
        where its kernels are not compiled here; or `unavailable`, why nothing was.
    """
    tell({"phase": "run"})
    target = target_named(arguments["device"])
    capability = target.capability
    if capability is None or capability not in LIMITS:
        return {"unavailable": f"the limits of compute capability {capability} are not known"}
    rows = [one if _is_compiled(one) else None for one in arguments["spaces"]]
    asked = {name: arguments[name] for name in ("budget_s", "timeout_s")}
    asked |= {"source": arguments.get("source"), "multiprocessors": target.multiprocessors}
    asked |= {"spaces": [one for one in rows if one is not None], "capability": capability}
    begun = time.monotonic()
    try:
        found = iter(_in_a_program(asked) if asked["spaces"] else ())
    except _Failed as error:
        return {"unavailable": str(error)}
    answers = [None if one is None else next(found) for one in rows]
    compiled = [None if one is None or _has_no_kernel(one) else one for one in answers]
    return {
        "capability": list(capability),
        "compiled": compiled,
        "wall_s": time.monotonic() - begun,
    }


class _Failed(Exception):
    """The program gave no answer."""


def _is_compiled(one: Mapping[str, Any]) -> bool:
    return one["format"] is None or implementation(one["implementation"]).provider == OWN


def _has_no_kernel(answer: Sequence[Mapping[str, Any]]) -> bool:
    return all(str(one["failure"]).endswith(NO_KERNEL) for one in answer)


def _in_a_program(asked: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    here = str(Path(kernel_compass.__file__).parents[1])
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    ours = {name: value for name, value in os.environ.items() if name != INTERPRETING}
    with tempfile.TemporaryDirectory(prefix="compiling-") as folder:
        files = [Path(folder) / name for name in ("asked.json", "found.json")]
        files[0].write_text(json.dumps(plain(asked)))
        command = [sys.executable, "-m", __name__, *map(str, files)]
        try:
            done = subprocess.run(
                command,
                env={**ours, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=asked["budget_s"] + GRACE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _Failed("the compilers were not done in time") from None
        if not files[1].exists():
            lines = done.stderr.strip().splitlines() or ["it said nothing"]
            raise _Failed(f"the program that compiles ended with {done.returncode}: {lines[-1]}")
        found: dict[str, Any] = json.loads(files[1].read_text())
    if "unavailable" in found:
        raise _Failed(found["unavailable"])
    return list(found["spaces"])


def main() -> int:
    """Compile what the first file asks for; write what became of it to the second."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    spaces = [_points(one, asked) for one in asked["spaces"]]
    try:
        found: dict[str, Any] = {"spaces": _compiled(spaces, asked)}
    except KernelCompassError as error:
        found = {"unavailable": error.found}
    Path(sys.argv[2]).write_text(json.dumps(found))
    return 0


def _points(one: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Point]:
    workload = reshaped(one["workload"], ProblemWorkload)
    capability = (int(asked["capability"][0]), int(asked["capability"][1]))
    name = one["implementation"]
    request: Compilable
    if one["format"] is None:
        source = reshaped(asked["source"], ProblemSource)
        request = FileRequest(source, workload, name, capability, asked["multiprocessors"])
    else:
        assert workload.product is not None
        number_format = NumberFormat.parse(one["format"])
        request = StaticRequest(name, workload.product, number_format, capability)
    return [(request, config) for config in one["configs"]]


def _compiled(
    spaces: Sequence[Sequence[Point]], asked: Mapping[str, Any]
) -> list[list[dict[str, Any]]]:
    """The first of every space, then the second of every one: time may not suffice for all."""
    numbered = [[(s, i) for i in range(len(points))] for s, points in enumerate(spaces)]
    order = [at for rank in zip_longest(*numbered) for at in rank if at is not None]
    found = compile_points(
        [spaces[s][i] for s, i in order],
        processes=max(len(os.sched_getaffinity(0)) - SPARED_CORES, 1),
        timeout_s=asked["timeout_s"],
        budget_s=asked["budget_s"],
    )
    by_place = dict(zip(order, found, strict=True))
    return [[asdict(by_place[at]) for at in row] for row in numbered]


if __name__ == "__main__":
    sys.exit(main())
