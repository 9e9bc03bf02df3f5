"""Calls of a candidate that Python refuses: is that the user's word, or the candidate's fault?

A decorator may take arguments away or add some, so the source of a decorated function does not say
how it is called: the call itself does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from kernel_compass.errors import NotTaken, shortened
from kernel_compass.records.contracts import Config

_UNEXPECTED = re.compile(r"got an unexpected keyword argument '(\w+)'")
_MISSING = re.compile(r"(\S+)\(\) missing \d+ required (?:keyword-only|positional) argument")


def not_taken(
    function: Callable[..., Any], inputs: Collection[str], config: Config, error: TypeError
) -> NotTaken | None:
    """What a refused call says of the configuration; `None` = the error is the candidate's own.

    Args:
        function: the candidate that was called.
        inputs: names of the problem's inputs.
        config: what it was called with beside them.
        error: what the call raised.
    """
    said = str(error)
    unexpected, missing = _UNEXPECTED.search(said), _MISSING.match(said)
    name = str(getattr(function, "__name__", type(function).__name__))
    of_config = unexpected is not None and unexpected[1] in config
    of_itself = missing is not None and missing[1].rpartition(".")[2] in _names(function)
    if not (of_config or of_itself):
        return None
    given = f"the configuration {shortened(json.dumps(dict(config)))}" if config else "none"
    return NotTaken(
        f"{name} cannot be called with the inputs and {given}: {shortened(said)}.",
        f"Inputs are {', '.join(inputs)}; give --config with the names that it takes beside them.",
    )


def _names(function: Callable[..., Any], depth: int = 4) -> set[str]:
    """Its own, and those of what decorators put themselves around."""
    cells = getattr(function, "__closure__", None) or ()
    within = [cell.cell_contents for cell in cells if _is_filled(cell)]
    inner = [one for one in (*within, getattr(function, "__wrapped__", None)) if callable(one)]
    names = {str(getattr(function, "__name__", ""))}
    return names.union(*(_names(one, depth - 1) for one in inner)) if depth else names


def _is_filled(cell: Any) -> bool:
    try:
        return bool(cell.cell_contents is not None)
    except ValueError:
        return False
