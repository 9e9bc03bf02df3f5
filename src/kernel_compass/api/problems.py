"""Problems by name: a target and what decides its workloads, found again by any process.

`mla:MODEL` (both reconstruction products), `bmm:HxMxKxN`, `linear:MxNxK`, or the path of a file.
A file is code: this process reads and hashes it, and only workers run it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_compass.access import unreadable
from kernel_compass.api.kernel_requests import mla_items
from kernel_compass.api.problem_candidates import judged, load_source
from kernel_compass.api.problem_imports import digest_of
from kernel_compass.api.problem_recipes import BASELINE, problem_recipe
from kernel_compass.api.product_problem import of_product
from kernel_compass.codec.canonical import plain, reshaped
from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.execution import Task
from kernel_compass.records.loop_contracts import Executor
from kernel_compass.records.problem import (
    ERROR_BUDGET_PCT,
    ProblemDescription,
    ProblemSource,
    ProblemWorkload,
    Value,
)
from kernel_compass.records.shape_texts import EXAMPLES, FORMS, workload_of
from kernel_compass.records.workload import Op

__all__ = [
    "BASELINE",
    "describe_problem",
    "describe_task",
    "is_file",
    "judged",
    "problem_recipe",
    "problem_source",
    "product_description",
]

DESCRIBE = f"{__name__}:describe_task"
MLA = "mla"
TOKENS = (1, 16, 64)
"""Batch sizes of an MLA problem where none are named."""
FORMS_TEXT = (
    "Name mla:MODEL (mla:deepseek-v3), bmm:HxMxKxN (bmm:128x1x128x512), linear:MxNxK "
    "(linear:16x4096x4096), or a problem's file (problem.py)."
)
MOST_FILE_BYTES = 8 << 20


def problem_source(
    target: str, tokens: Sequence[int] | None = None, tp: int | None = None
) -> ProblemSource:
    """How a problem is found again by any process.

    Args:
        target: see the module.
        tokens: batch sizes; of an MLA problem 1, 16 and 64 where `None`; of a product what its
            shape says.
        tp: GPUs that an MLA model is split over; 1 where `None`.

    Raises:
        UsageError: nothing is called that, or it does not take these arguments.
    """
    arguments: dict[str, Value] = {}
    if tokens is not None:
        arguments["tokens"] = ",".join(map(str, dict.fromkeys(tokens)))
    if tp is not None:
        arguments["tp"] = tp
    if is_file(target):
        return _file_source(Path(target), arguments)
    source = ProblemSource(target.strip().lower(), arguments)
    product_description(source)  # raises where it is none
    return source


def is_file(target: str) -> bool:
    """Whether a target is a file's path rather than a name."""
    if Path(target).suffix == ".py":
        return True
    return re.match(r"\s*(mla|bmm|linear)\s*:", target, re.IGNORECASE) is None and "/" in target


def product_description(source: ProblemSource) -> ProblemDescription:
    """What there is to know of a built-in problem.

    Raises:
        UsageError: it is none, or cannot be split like that.
    """
    kind, colon, rest = (part.strip() for part in source.target.partition(":"))
    if not colon or kind not in (MLA, *(op.value for op in Op)):
        raise UsageError(f"There is no problem {shortened(source.target)!r}.", FORMS_TEXT)
    workloads = _mla(rest, source) if kind == MLA else _products(Op(kind), rest, source)
    return ProblemDescription(source.target, workloads, ("weight",), ERROR_BUDGET_PCT)


def describe_problem(
    source: ProblemSource, executor: Executor, device: str = "cpu"
) -> ProblemDescription:
    """What there is to know of a problem; a file is asked in a worker.

    Args:
        source: from `problem_source`.
        executor: where a file's code may run; nothing else may be under way there.
        device: where the file's inputs are made when it is tried.

    Raises:
        UsageError: the file is no problem; it says what is wrong.
    """
    if source.sha256 is None:
        return product_description(source)
    arguments = {"source": plain(source), "device": device}
    executor.submit(Task("describe", DESCRIBE, arguments))
    for end in executor.ended():
        if end.answer is not None and "wrong" in end.answer:
            raise UsageError(*end.answer["wrong"])
        if end.answer is not None:
            return reshaped(end.answer["description"], ProblemDescription)
        what = end.failure.detail if end.failure else "it did not answer"
        found = f"{source.target} could not be loaded: {what}"
        raise UsageError(found, "Run it alone with Python first.")
    raise AssertionError("an executor ends what it took")


def describe_task(arguments: Any, tell: Any) -> dict[str, Any]:
    """In a worker: run a problem's file and say what is in it.

    Args:
        arguments: `source`, `device`.
        tell: told when the file is run.

    Returns:
        `description`; or `wrong`: what is wrong with the file, and the remedy.
    """
    from kernel_compass.kernels.library import torch_library

    source = reshaped(arguments["source"], ProblemSource)
    tell({"phase": "compile"})
    try:
        loaded = load_source(torch_library(), source, arguments["device"])
    except UsageError as error:
        return {"wrong": [error.found, error.remedy]}
    return {"description": plain(loaded.description)}


def _file_source(path: Path, arguments: dict[str, Value]) -> ProblemSource:
    if arguments:
        found = f"{path.name} names its workloads itself: no {' or '.join(arguments)} goes with it."
        raise UsageError(found, "Leave it out, or change WORKLOADS in the file.")
    return ProblemSource(str(path.absolute()), {}, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Of a file's contents, and of what it imports from its own folder.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if not path.is_file():
            raise UsageError(f"There is no file {path}.", FORMS_TEXT)
        if path.stat().st_size > MOST_FILE_BYTES:
            raise UsageError(f"{path} is too large for a Python file.", FORMS_TEXT)
        return digest_of(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _mla(model: str, source: ProblemSource) -> tuple[ProblemWorkload, ...]:
    items = mla_items(model, _tokens(source) or TOKENS, _tp(source))
    return tuple(replace(of_product(i.workload), weight=float(i.layers or 1)) for i in items)


def _products(op: Op, shape: str, source: ProblemSource) -> tuple[ProblemWorkload, ...]:
    if "tp" in source.arguments:
        found = f"A {op.value} is not split over GPUs: no tp goes with it."
        raise UsageError(found, "Name the shape that one GPU computes.")
    try:
        workload = workload_of(op.value, shape)
    except UsageError as error:
        example = EXAMPLES[op].replace(" ", ":")
        raise UsageError(error.found, f"Write {op.value}:{FORMS[op]}, like {example}.") from None
    counts = _tokens(source) or (workload.tokens,)
    return tuple(of_product(replace(workload, tokens=count)) for count in counts)


def _tokens(source: ProblemSource) -> tuple[int, ...]:
    text = str(source.arguments.get("tokens", ""))
    words = [word for word in text.split(",") if word]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) <= 1 << 20 for word in words):
        found = f"tokens {shortened(text)!r} is no list of batch sizes."
        raise UsageError(found, "Write for example 1,16,64.")
    return tuple(dict.fromkeys(map(int, words)))


def _tp(source: ProblemSource) -> int:
    found = source.arguments.get("tp", 1)
    if not isinstance(found, int) or isinstance(found, bool):
        raise UsageError(f"tp {found!r} is no number of GPUs.", "Write for example 8.")
    return found
