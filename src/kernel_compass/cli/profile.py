"""`kernel-compass profile`: a program to a report, through ncu or through torch.profiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from kernel_compass.cli import progress
from kernel_compass.cli.diagnose import show
from kernel_compass.cli.options import (
    CalibrationOption,
    FormatOption,
    JsonOption,
    LabelOption,
    OutputOption,
    regimes_named,
)
from kernel_compass.cli.output import chosen_format, prepare
from kernel_compass.cli.target import command_of, end_options_after_module, misplaced_options
from kernel_compass.errors import UsageError
from kernel_compass.records.profile import Regime

if TYPE_CHECKING:
    from kernel_compass.records.request import ProfileRequest

STDOUT, STDERR = 1, 2

TargetArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SCRIPT",
        help="A Python script (run by this Python) or an executable, and its arguments. "
        "All that follows SCRIPT or -m MODULE belongs to it.",
        show_default=False,
    ),
]
ModuleOption = Annotated[
    str | None,
    typer.Option("--module", "-m", metavar="MODULE", help="Run a module, as python -m does."),
]
RegimesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--regime",
        metavar="[warm|cold|in_situ]",
        help="Where the weights are before each launch: warm = re-read, cold = flushed from the "
        "caches, in_situ = as the program leaves them. Repeatable. Default: warm and cold.",
        show_default=False,
    ),
]
KernelsOption = Annotated[
    str | None,
    typer.Option("--kernels", metavar="REGEX", help="Only kernels whose name matches."),
]
NvtxOption = Annotated[
    str | None,
    typer.Option(
        "--nvtx",
        metavar="FILTER",
        help="Only kernels inside this NVTX range; `name/` for push/pop ranges, "
        "`name` for start/end ranges.",
    ),
]
SkipOption = Annotated[
    int, typer.Option("--launch-skip", metavar="N", min=0, help="Leave out the first N launches.")
]
CountOption = Annotated[
    int | None, typer.Option("--launch-count", metavar="N", min=1, help="Profile N launches.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, help="Give up after this time."),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="FOLDER",
        help="Keep the captures here; `kernel-compass diagnose` reads them again.",
    ),
]
NoCountersOption = Annotated[
    bool,
    typer.Option(
        "--no-counters",
        help="Record a timeline with torch.profiler instead, which needs no permission: kernels, "
        "gaps and launches, but not what bounds a kernel. For Python programs that use PyTorch.",
    ),
]


class ProfileCommand(TyperCommand):
    """A command whose options end at SCRIPT or at `-m MODULE`."""

    def collect_usage_pieces(  # type: ignore[override]
        self,
        ctx: typer.Context,  # noqa: ARG002
    ) -> list[str]:
        """What stands behind `Usage: kernel-compass profile`."""
        return ["[OPTIONS]", "(SCRIPT | -m MODULE)", "[-- ARGS]"]

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse ours; what follows belongs to the target."""
        options = [p for p in self.params if p.param_type_name == "option"]
        with_value = {name for p in options if not getattr(p, "is_flag", False) for name in p.opts}
        ctx.meta["own_options"] = {name for p in options for name in p.opts}
        return super().parse_args(ctx, end_options_after_module(args, with_value))


def profile(
    ctx: typer.Context,
    target: TargetArgument = None,
    module: ModuleOption = None,
    regime: RegimesOption = None,
    kernels: KernelsOption = None,
    nvtx: NvtxOption = None,
    launch_skip: SkipOption = 0,
    launch_count: CountOption = None,
    timeout: TimeoutOption = None,
    label: LabelOption = None,
    calibration: CalibrationOption = None,
    format: FormatOption = None,
    json: JsonOption = False,
    output: OutputOption = None,
    save: SaveOption = None,
    no_counters: NoCountersOption = False,
) -> None:
    """Run a program under ncu and say what limits its kernels. Needs a GPU and ncu.

    Where the driver keeps the counters back, --no-counters tells what a timeline can.

    The program's own standard output is passed through: to standard error while the report goes
    to standard output, and to standard output when --output takes the report.
    """
    kind = chosen_format(format, json, output)
    words = target or []
    from kernel_compass.records.request import ProfileRequest

    request = ProfileRequest(
        command=command_of(module, words),
        regimes=regimes_named(regime or ()) or (Regime.WARM, Regime.COLD),
        kernels=_pattern(kernels),
        nvtx=nvtx,
        launch_skip=launch_skip,
        launch_count=launch_count,
        timeout_s=timeout,
        label=label,
        save_dir=_folder(save),
    )
    if no_counters:
        _refuse_counter_options(request, regime or ())
    prepare(output)
    for option in misplaced_options(words, ctx.meta["own_options"]) if module is None else ():
        note = f"note: {option} follows {words[0]} and goes to it; ours go before it"
        typer.echo(note, err=True)
    from kernel_compass import api

    target_stdout = STDERR if output is None else STDOUT
    with progress.shown() as on_progress:
        if no_counters:
            reports = api.profile_timeline(request, on_progress, target_stdout, calibration)
        else:
            reports = [api.profile_target(request, on_progress, target_stdout, calibration)]
    show(reports, kind, output, as_list=False)


def _refuse_counter_options(request: ProfileRequest, regimes: Sequence[str]) -> None:
    """Options that only a profile with counters has."""
    given = {
        "--regime": any(one is not Regime.IN_SITU for one in regimes_named(regimes)),
        "--kernels": request.kernels is not None,
        "--nvtx": request.nvtx is not None,
        "--launch-skip": request.launch_skip > 0,
        "--launch-count": request.launch_count is not None,
    }
    wrong = [option for option, is_given in given.items() if is_given]
    if wrong:
        found = f"--no-counters and {', '.join(wrong)} contradict each other: a timeline shows the "
        found += "whole program as it runs, which is in_situ."
        raise UsageError(found, f"Leave {', '.join(wrong)} out.")


def _pattern(kernels: str | None) -> str | None:
    """The regular expression, once it is known to be one."""
    try:
        return None if kernels is None else re.compile(kernels).pattern
    except re.error as error:
        found = f"--kernels {kernels!r} is no regular expression: {error}."
        raise UsageError(
            found, r"Escape special characters, for example \( for a bracket."
        ) from None


def _folder(save: Path | None) -> Path | None:
    if save is not None and save.exists() and not save.is_dir():
        raise UsageError(f"--save {save} is a file.", "Name a folder; it is created if missing.")
    return save
