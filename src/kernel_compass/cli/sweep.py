"""`kernel-compass sweep`: kernels across the boundary of L2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_compass.cli.options import FormatOption, JsonOption
from kernel_compass.cli.shapes import MAX_BYTES, tokens_of
from kernel_compass.cli.table_options import (
    AgainOption,
    ContiguousOption,
    DeviceOption,
    DryRunOption,
    GpuOption,
    ImplementationsOption,
    PrecisionsOption,
    RegimeOption,
    TableOutputOption,
    formats_named,
    layout_of,
    sizes_of,
    table_form,
    table_regimes,
    words_of,
)
from kernel_compass.cli.table_running import Outlet, measure, plan
from kernel_compass.errors import UsageError

PRECISIONS = ("bf16", "w8a16_fp8", "w4a16_gk")

HeadsOption = Annotated[str, typer.Option("--heads", metavar="H", help="Batch of the bmm.")]
KOption = Annotated[str, typer.Option("--k", metavar="K", help="Reduction.")]
NOption = Annotated[
    str,
    typer.Option(
        "--n",
        metavar="RANGE",
        help="Columns: a list 512,1024; A..B, both ends and 2^i and 3 x 2^i between them; "
        "A..B:STEP, from A in steps to B at most.",
    ),
]
TokensOption = Annotated[str, typer.Option("--tokens", metavar="N,N,...", help="Batch sizes, M.")]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw times and floors over the weights."),
]


def sweep(
    heads: HeadsOption = "128",
    k: KOption = "128",
    n: NOption = "256..4096",
    tokens: TokensOption = "1,16",
    regime: RegimeOption = None,
    precisions: PrecisionsOption = None,
    implementations: ImplementationsOption = None,
    contiguous: ContiguousOption = False,
    dry_run: DryRunOption = False,
    gpu: GpuOption = None,
    device: DeviceOption = None,
    again: AgainOption = False,
    plot: PlotOption = None,
    format: FormatOption = None,
    json: JsonOption = False,
    output: TableOutputOption = None,
) -> None:
    """Time a bmm over the size of its weights, from within L2 to beyond: who wins, and where.

    Whether the working set stays in L2 is judged by the measured capacity of the calibration. The
    baseline, cuBLAS in bf16, is measured beside every kernel.
    """
    outlet = Outlet(table_form(format, json, output), output, plot)
    formats = formats_named(precisions, PRECISIONS)
    regimes = table_regimes(regime)
    names = words_of(implementations or "")
    columns = sizes_of("--n", n)
    h, reduction = _one("--heads", heads), _one("--k", k)
    batches = tokens_of(tokens)
    _check_size(h, reduction, max(columns), max(batches))
    from kernel_compass import api

    items = api.sweep_items(h, reduction, columns, batches)
    request = api.TableRequest(items, formats, regimes, names or None, layout_of(contiguous))
    if dry_run:
        plan(request, gpu, outlet, names)
    else:
        measure(request, gpu, device or 0, outlet, again)


def _one(option: str, text: str) -> int:
    sizes = sizes_of(option, text)
    if len(sizes) > 1:
        raise UsageError(f"{option} {text} names several sizes.", f"Name one, e.g. {option} 128.")
    return sizes[0]


def _check_size(heads: int, reduction: int, columns: int, tokens: int) -> None:
    """Whether the largest product of a sweep could be on a GPU.

    Raises:
        UsageError: it could not.
    """
    elements = heads * (reduction * columns + tokens * (reduction + columns))
    if 2 * elements > MAX_BYTES:
        found = f"bmm {heads}x{tokens}x{reduction}x{columns} does not fit on a GPU."
        raise UsageError(found, "Name smaller --heads, --k, --n or --tokens.")
