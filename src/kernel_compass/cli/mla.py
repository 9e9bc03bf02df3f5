"""`kernel-compass mla`: DeepSeek's reconstruction products in every format, kernel and regime."""

from __future__ import annotations

from typing import Annotated

import typer

from kernel_compass.cli.options import FormatOption, JsonOption
from kernel_compass.cli.shapes import tokens_of
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
    table_form,
    table_regimes,
    words_of,
)
from kernel_compass.cli.table_running import Outlet, measure, plan, profile
from kernel_compass.errors import UsageError

PRECISIONS = ("bf16", "w8a16_fp8", "w8a16_int8", "w4a16_gk")
TOKENS = "1,4,16,64,128,256,512"

ModelOption = Annotated[
    str,
    typer.Option("--model", metavar="NAME", help="deepseek-v3, deepseek-v2 or deepseek-v2-lite."),
]
TokensOption = Annotated[
    str, typer.Option("--tokens", metavar="N,N,...", help="Batch sizes: rows of the activations.")
]
TpOption = Annotated[
    int, typer.Option("--tp", metavar="N", min=1, help="GPUs that the heads are split over.")
]
NcuModeOption = Annotated[
    bool,
    typer.Option(
        "--ncu-mode",
        help="Launch each kernel three times in an NVTX range of its own, for ncu to count; times "
        "nothing.",
    ),
]


def mla(
    model: ModelOption = "deepseek-v3",
    tokens: TokensOption = TOKENS,
    tp: TpOption = 1,
    regime: RegimeOption = None,
    precisions: PrecisionsOption = None,
    implementations: ImplementationsOption = None,
    contiguous: ContiguousOption = False,
    ncu_mode: NcuModeOption = False,
    dry_run: DryRunOption = False,
    gpu: GpuOption = None,
    device: DeviceOption = None,
    again: AgainOption = False,
    format: FormatOption = None,
    json: JsonOption = False,
    output: TableOutputOption = None,
) -> None:
    """Time MLA's two reconstruction products: q_absorb (H x M x 128 x 512) and v_up.

    Every kernel is checked against float64 first. For each: time, TFLOP/s, GB/s, headroom over the
    floor, relative error, a layer and the whole model.
    """
    outlet = Outlet(table_form(format, json, output), output)
    formats = formats_named(precisions, PRECISIONS)
    regimes = table_regimes(regime)
    names = words_of(implementations or "")
    if ncu_mode:
        _check_profiles(dry_run, json, output is not None, format is not None)
    from kernel_compass import api

    items = api.mla_items(model, tokens_of(tokens), tp)
    request = api.TableRequest(items, formats, regimes, names or None, layout_of(contiguous))
    if ncu_mode:
        profile(request, device or 0, _ncu_command)
    elif dry_run:
        plan(request, gpu, outlet, names)
    else:
        measure(request, gpu, device or 0, outlet, again)


def _check_profiles(dry_run: bool, json: bool, output: bool, format: bool) -> None:
    """No option of a table beside `--ncu-mode`.

    Raises:
        UsageError: there is one.
    """
    options = {"--dry-run": dry_run, "--json": json, "--output": output, "--format": format}
    given = [name for name, there in options.items() if there]
    if given:
        found = f"--ncu-mode times nothing, so {' and '.join(given)} cannot go with it."
        raise UsageError(found, "Leave it out; ncu writes its own file.")


def _ncu_command(name: str) -> str:
    return (
        "each name is an NVTX push/pop range; for example "
        f"`ncu --nvtx --nvtx-include '{name}/' python -m kernels.mla_reconstruction --ncu-mode ...`"
    )
