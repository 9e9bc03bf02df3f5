"""Names that a user asks of a problem's or a candidate's file: is it there, does it take that?

What is wrong with a name is the user's word, not the candidate's fault: it is said before anything
is judged, with what there is instead.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernel_compass.api.problem_files import FileProblem
from kernel_compass.api.problem_models import is_model_file
from kernel_compass.api.problem_whole import check_compiled
from kernel_compass.api.source_names import names_of
from kernel_compass.api.tuned_kernels import launched_kernels, pins_of, split
from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.baseline_survey import COMPILED
from kernel_compass.records.contracts import Config
from kernel_compass.records.trial import Candidate

BASELINE_NAME = "baseline"
"""Of a problem's file: its own baseline."""
MODEL_NEW = "ModelNew"
"""What a candidate's class is called."""


def check_named(loaded: FileProblem, candidate: Candidate, path: Path | None) -> None:
    """That a candidate is there and takes its configuration. Runs no code that has not run.

    Args:
        loaded: the problem; its file was run.
        candidate: its name, and its configuration.
        path: its own file, which is read, not run; `None` = it is the problem's own.

    Raises:
        UsageError: nothing is called so, or it does not take this; it says what there is.
    """
    if is_model_file(loaded.module):
        _check_of_model(loaded, candidate, path)
    elif path is None:
        _check_own(loaded, candidate)
    else:
        _check_beside(loaded, candidate, path)


def _check_of_model(loaded: FileProblem, candidate: Candidate, path: Path | None) -> None:
    name, place = candidate.implementation, path or Path(str(loaded.module.__file__))
    known = (MODEL_NEW,) if path is not None else (BASELINE_NAME, MODEL_NEW)
    if name not in known:
        found = f"The problem has a Model, and {shortened(name)} is no {MODEL_NEW}."
        raise UsageError(found, f"Name a file that has {MODEL_NEW}, FILE.py, or `baseline`.")
    if candidate.config:
        _refuse_config(name, candidate.config)
    if name == MODEL_NEW:
        has = names_of(place)
        if not has.may_be_called(MODEL_NEW):
            found = f"{place.name} has no {MODEL_NEW}."
            raise UsageError(found, f"{_it_has(has.classes)} A candidate for a Model is one.")


def _check_own(loaded: FileProblem, candidate: Candidate) -> None:
    name, place = candidate.implementation, Path(str(loaded.module.__file__)).name
    if name == BASELINE_NAME:
        if candidate.config:
            _refuse_config(name, candidate.config)
        return
    if name == COMPILED:
        check_compiled(candidate.config)
        return
    listed_here = loaded.candidates.get(name)
    function = listed_here[0] if listed_here else getattr(loaded.module, name, None)
    if not callable(function):
        listed = (*loaded.candidates, BASELINE_NAME)
        beside = "; for a function of it write FILE.py:FUNCTION" if loaded.candidates else ""
        raise UsageError(
            f"{place} has no candidate {shortened(name)!r}.", f"It has {', '.join(listed)}{beside}."
        )
    space = listed_here[1] if listed_here else ()
    own, _ = split(candidate.config)
    _check_taken(name, _signature(function), loaded.inputs, own, space)
    tuned = [one.name for one in launched_kernels(function) if one.tuner is not None]
    pins_of(function, {n: v for n, v in candidate.config.items() if n.rpartition(".")[0] in tuned})
    other = [n for n in candidate.config if "." in n and n.rpartition(".")[0] not in tuned]
    if other:
        found = f"{name} launches no autotuned kernel {other[0].rpartition('.')[0]!r}."
        raise UsageError(found, f"It launches {', '.join(tuned) or 'none'}.")


def _check_beside(loaded: FileProblem, candidate: Candidate, path: Path) -> None:
    name, has = candidate.implementation, names_of(path)
    if not has.may_be_called(name):
        raise UsageError(
            f"{path.name} has no function {shortened(name)!r}.",
            f"{_it_has(has.functions)} Name one as {path.name}:FUNCTION; it takes the problem's "
            f"inputs by name: {', '.join(loaded.inputs)}.",
        )
    own, _ = split(candidate.config)
    _check_taken(name, has.signature(name), loaded.inputs, own, ())


def _check_taken(
    name: str,
    signature: inspect.Signature | None,
    inputs: Sequence[str],
    config: Config,
    space: Sequence[Config],
) -> None:
    """That a function can be called with the inputs and this configuration, all by name."""
    for one in config:
        if one in inputs:
            found = f"The configuration has {one!r}, and that is an input of the problem."
            raise UsageError(found, f"Inputs are {', '.join(inputs)}: leave them out of it.")
    if signature is None:
        return
    try:
        signature.bind(**dict.fromkeys(inputs), **config)
    except TypeError as error:
        free = [n for n in _named(signature) if n not in inputs]
        takes = f"takes {', '.join(free)} beside them" if free else "takes them alone"
        example = space[0] if space and space[0] else dict.fromkeys(free, 1)
        remedy = f"Beside the inputs ({', '.join(inputs)}) write --config '{json.dumps(example)}'."
        raise UsageError(
            f"{name} cannot be called with the inputs and {_words(config)}: {error}; it {takes}.",
            remedy if free else "Leave the configuration out; its arguments are the inputs.",
        ) from None


def _refuse_config(name: str, config: Config) -> None:
    found = f"{name} takes no configuration, and {_words(config)} is one."
    raise UsageError(found, "Leave --config out.")


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _named(signature: inspect.Signature) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, one in signature.parameters.items() if one.kind in kinds]


def _words(config: Config) -> str:
    text = shortened(json.dumps(dict(config)))
    return f"the configuration {text}" if config else "no configuration"


def _it_has(names: Sequence[str]) -> str:
    return f"It has {', '.join(names) or 'none'}."
