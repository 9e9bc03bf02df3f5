"""Profile a Python program without counters: run it under torch.profiler and read its trace."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from kernel_compass.errors import (
    CaptureError,
    NotATimeline,
    ProfilingCause,
    ProfilingError,
    UsageError,
)
from kernel_compass.profiling.capture_folder import stem_of
from kernel_compass.profiling.kineto import read_traces
from kernel_compass.profiling.ncu_failures import TIMEOUT
from kernel_compass.profiling.ncu_process import Outcome, run_watched
from kernel_compass.profiling.timeline_failures import (
    no_trace,
    notes_of,
    nothing_recorded,
    target_failed,
)
from kernel_compass.records.profile import SourceFormat
from kernel_compass.records.request import ProfileRequest
from kernel_compass.records.trace import Trace

EXPORT_GRACE_S = 60.0
"""How long an interrupted program may take to write its trace."""
HEARTBEAT_S = 1.0

_RUNNER = Path(__file__).with_name("torch_runner.py")
_WITH_VALUE = ("-W", "-X")


@dataclass(frozen=True)
class TimelineProgress:
    """How long a recording has been going on; what ran is known only at its end."""

    seconds: float
    regime: str = "in_situ"
    kernels_done: int | None = None
    kernel_name: str | None = None


def run_timeline(
    request: ProfileRequest,
    on_progress: Callable[[TimelineProgress], None] | None = None,
    target_stdout: int | None = None,
    grace_s: float = EXPORT_GRACE_S,
) -> tuple[Trace, ...]:
    """Run the target once under torch.profiler and read what it did on the GPU.

    When the time-out strikes, or the target fails, what was recorded until then is returned with
    a warning. With `save_dir` the trace is kept, after an interruption too.

    Args:
        request: a Python program; its regimes and filters are not used.
        on_progress: told at least once a second.
        target_stdout: file descriptor for the target's standard output, by default ours.
        grace_s: how long an interrupted target may take to write its trace.

    Raises:
        UsageError: the target is no Python program, or `save_dir` cannot be used.
        MissingDependency: its Python has no torch that can be imported.
        ProfilingError: the target failed or used no GPU, or no trace came of it.
        KeyboardInterrupt: interrupted; every process of the job has ended by then.
    """
    interpreter, words = _python(request.command)
    _check_folder(request.save_dir)
    with tempfile.TemporaryDirectory(prefix="kernel-compass-", ignore_cleanup_errors=True) as work:
        trace = Path(work) / "trace.json"
        argv = [*interpreter, str(_RUNNER), str(trace), *words]
        try:
            outcome = _watched(argv, request, on_progress, target_stdout, grace_s)
        finally:
            kept = _keep(trace, request)
        status = _status(trace)
        if not trace.exists():
            raise no_trace(outcome, status, request)
        traces = _read(trace, outcome, status, request)
    notes = (*notes_of(outcome, status), *kept.notes)
    source = replace(traces[0].source, path=None if kept.path is None else str(kept.path))
    first = replace(traces[0], warnings=(*notes, *traces[0].warnings))
    return tuple(replace(one, source=source) for one in (first, *traces[1:]))


def _watched(
    argv: Sequence[str],
    request: ProfileRequest,
    on_progress: Callable[[TimelineProgress], None] | None,
    target_stdout: int | None,
    grace_s: float,
) -> Outcome:
    start = told = time.monotonic()

    def watch() -> str | None:
        nonlocal told
        now = time.monotonic()
        if on_progress and now - told >= HEARTBEAT_S:
            told = now
            on_progress(TimelineProgress(now - start))
        late = request.timeout_s is not None and now - start > request.timeout_s
        return TIMEOUT if late else None

    try:
        return run_watched(argv, os.environ, watch, target_stdout, grace_s)
    except OSError as error:
        found = f"{argv[0]} cannot be run: {error.strerror}."
        raise ProfilingError(
            ProfilingCause.TARGET_FAILED, found, "Name a Python script."
        ) from error


def _python(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """A target's argv as interpreter with options, and kind, name and arguments of the program.

    Raises:
        UsageError: it is no Python program.
    """
    program = command[0]
    if not PurePath(program).name.startswith(("python", "pypy")):
        if _has_python_shebang(program):  # a console script such as `vllm`
            import sys

            return [sys.executable], ["script", *command]
        raise UsageError(
            f"{program} is no Python program: without counters, torch.profiler records from inside "
            "Python.",
            "Name a Python script, or -m MODULE; for other programs leave --no-counters out.",
        )
    options = [program]
    words = list(command[1:])
    while words:
        word = words.pop(0)
        if word in ("-m", "-c") and words:
            return options, ["module" if word == "-m" else "code", *words]
        if not word.startswith("-"):
            return options, ["script", word, *words]
        options.append(word)
        if word in _WITH_VALUE and words:
            options.append(words.pop(0))
    raise UsageError(f"{program} without a program to run.", "Name a script, or -m MODULE.")


def _has_python_shebang(program: str) -> bool:
    try:
        with Path(program).open("rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


@dataclass(frozen=True)
class _Kept:
    """Where a trace was kept, or why it was not."""

    path: Path | None = None
    notes: tuple[str, ...] = ()


def _check_folder(folder: Path | None) -> None:
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror}.") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written.", "Name another folder.")


def _keep(trace: Path, request: ProfileRequest) -> _Kept:
    """Compress the trace into the folder under a name that is free."""
    if request.save_dir is None or not trace.exists():
        return _Kept()
    stem, number = stem_of(request), 1
    try:
        while True:
            suffix = "" if number == 1 else f"-{number}"
            target = request.save_dir / f"{stem}{suffix}_timeline.json.gz"
            try:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
            except FileExistsError:
                number += 1
        part = target.with_name(f".{target.name}.part")
        with trace.open("rb") as source, gzip.open(part, "wb", compresslevel=4) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        part.replace(target)
    except OSError as error:
        return _Kept(None, (f"the trace could not be kept: {error.strerror or error}.",))
    return _Kept(target)


def _status(trace: Path) -> Mapping[str, Any]:
    """What the runner told; empty where it did not get that far."""
    try:
        found = json.loads(trace.with_name(f"{trace.name}.status").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read(
    trace: Path, outcome: Outcome, status: Mapping[str, Any], request: ProfileRequest
) -> tuple[Trace, ...]:
    try:
        return read_traces(trace, SourceFormat.KINETO_RUN)
    except NotATimeline as error:
        code = status.get("code", outcome.returncode)
        if code and not outcome.stopped:
            raise target_failed(int(code), outcome, request) from error
        raise nothing_recorded(error, status) from error
    except CaptureError as error:
        found = f"The trace that torch.profiler wrote cannot be used: {error.found}"
        remedy = "Keep it with --save FOLDER and look at it; another version of torch may help."
        raise ProfilingError(ProfilingCause.TARGET_FAILED, found, remedy) from error
