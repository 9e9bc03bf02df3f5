"""How a program, or a trace of one, is named: options of all commands that take one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScriptOption = Annotated[
    Path | None,
    typer.Option("--script", metavar="FILE", help="Run a Python script, as python FILE does."),
]
ModuleOption = Annotated[
    str | None,
    typer.Option("--module", "-m", metavar="NAME", help="Run a module, as python -m does."),
]
EntryOption = Annotated[
    str | None,
    typer.Option(
        "--entry",
        metavar="FILE:FUNCTION",
        help="A function without arguments: what it returns is the step, where that can be "
        "called, else calling the function is.",
    ),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="A trace of torch.profiler (vLLM's, SGLang's) in place of a run.",
    ),
]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS]", help="A program's own arguments.", show_default=False),
]
InputsOption = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE:FUNCTION|N",
        help="A function that yields the arguments of the --entry's step, tuple by tuple: the "
        "first is captured and timed, outputs are compared on all. Or so many of a program's own "
        "calls.",
    ),
]
