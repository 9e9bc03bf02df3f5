"""What `mla` and `sweep` have in common: their options, and lists as a user writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_compass.cli.options import regimes_named
from kernel_compass.cli.output import STDOUT, chosen_format, suffixes
from kernel_compass.cli.shapes import MAX_DIMENSION
from kernel_compass.errors import UsageError, shortened

if TYPE_CHECKING:
    from kernel_compass.records.kernel_table import Layout
    from kernel_compass.records.number_format import NumberFormat
    from kernel_compass.records.profile import Regime
    from kernel_compass.report.formats import Format

GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        "--calibration",
        metavar="NAME|FILE|this",
        help="Whose calibration floors and L2 capacity come from: a shipped one (h200, ...), a "
        "file, or this machine's. Default: that of the GPU measured; where there is none, floors "
        "are streamed in the run.",
        show_default=False,
    ),
]
RegimeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--regime",
        metavar="[warm|cold],...",
        help="Where the weights are before each launch. Default: warm and cold.",
        show_default=False,
    ),
]
PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        "--precisions",
        metavar="NAME,NAME,...",
        help="Number formats: bf16, fp16, w8a16_fp8, w8a16_int8, w8a8_fp8, w8a8_int8, "
        "w8a8_fp8_block, w4a16_g32 ... w4a16_gk, also with _asym: w and a are the bits of weights "
        "and activations, g the weights along K that share a scale (k: all).",
        show_default=False,
    ),
]
ImplementationsOption = Annotated[
    str | None,
    typer.Option(
        "--implementations",
        metavar="NAME,NAME,...",
        help="Which kernels and libraries. Default: all that can. The baseline cublas_bf16 is "
        "always measured.",
        show_default=False,
    ),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Show shapes, bytes and floors; needs no GPU and no torch."),
]
ContiguousOption = Annotated[
    bool,
    typer.Option(
        "--contiguous",
        help="Dense (H, M, .) activations and outputs, instead of the views of [M, H, .] that "
        "serving engines hand over.",
    ),
]
DeviceOption = Annotated[
    int | None,
    typer.Option("--device", metavar="INDEX", min=0, help="Which GPU, as CUDA counts. Default: 0."),
]
TableOutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Keep the rows in this file (.json or .csv), written whole after every row; what it "
        "holds of the same kernel, shape, GPU, driver and versions is not measured again. Missing "
        "folders are created.",
    ),
]
AgainOption = Annotated[
    bool,
    typer.Option("--again", help="Measure also what --output holds already, and replace it."),
]

_RANGE = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})(?::([0-9]{1,9}))?")
MOST_VALUES = 200


def words_of(text: str) -> tuple[str, ...]:
    """The words of a list with commas, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def formats_named(text: str | None, default: Sequence[str]) -> tuple[NumberFormat, ...]:
    """Number formats by their names.

    Raises:
        UsageError: one of them is none, or there is none in the list.
    """
    from kernel_compass.records.number_format import NumberFormat

    names = tuple(default) if text is None else words_of(text)
    if not names:
        raise UsageError("--precisions names no format.", f"For example {','.join(default)}.")
    return tuple(dict.fromkeys(NumberFormat.parse(name) for name in names))


def table_regimes(texts: Sequence[str] | None) -> tuple[Regime, ...]:
    """Regimes, each option with one or several; warm and cold where none is named.

    Raises:
        UsageError: no such regime, or `in_situ`.
    """
    from kernel_compass.api.kernel_requests import MEASURED_REGIMES

    words = [word for text in texts or () for word in words_of(text)]
    return regimes_named(words, MEASURED_REGIMES) or MEASURED_REGIMES


def table_form(format: Format | None, json: bool, output: Path | None) -> Format:
    """The form of a table: as asked for, else of the output's suffix, else the terminal's.

    Raises:
        UsageError: the suffix names no form, and none was asked for.
    """
    form = chosen_format(format, json, output)
    if output is None or output == STDOUT or json or format is not None:
        return form
    special = output.exists() and not output.is_file()
    if output.suffix.lower() not in suffixes() and not special:
        found = f"--output {output}: its name does not say in which form."
        raise UsageError(found, "Name a .json or .csv file, which can be continued, or --format.")
    return form


def layout_of(contiguous: bool) -> Layout:
    """How activations and outputs lie."""
    from kernel_compass.records.kernel_table import Layout

    return Layout.CONTIGUOUS if contiguous else Layout.SERVING


def sizes_of(option: str, text: str) -> tuple[int, ...]:
    """Sizes as a list, `512,1024`, a range `256..4096` by halves of powers of two, or `A..B:STEP`.

    Raises:
        UsageError: neither, an empty or a long one, or a size out of range.
    """
    example = f"Write for example {option} 256..4096, 256..4096:256 or 512,1024,4096."
    words = words_of(text)
    sizes: list[int] = []
    for word in words:
        matched = _RANGE.fullmatch(word)
        if matched:
            low, high, step = (None if part is None else int(part) for part in matched.groups())
            sizes += _between(low or 0, high or 0, step)
        elif re.fullmatch(r"[0-9]{1,9}", word):
            sizes.append(int(word))
        else:
            raise UsageError(f"{option} {shortened(text)} is no list of sizes.", example)
    wrong = next((size for size in sizes if not 1 <= size <= MAX_DIMENSION), None)
    if wrong is not None:
        found = f"{option} {shortened(text)}: {wrong:,} is not between 1 and {MAX_DIMENSION:,}."
        raise UsageError(found, example)
    if not 1 <= len(sizes) <= MOST_VALUES:
        many = f"more than {MOST_VALUES}" if sizes else "no"
        raise UsageError(f"{option} {shortened(text)} names {many} sizes.", example)
    return tuple(dict.fromkeys(sizes))


def _between(low: int, high: int, step: int | None) -> list[int]:
    """Both ends and what lies between: every `step`, or 2^i and 3 x 2^i."""
    if low < 1 or high < low or high > MAX_DIMENSION or step == 0:
        return []
    if step is not None:
        return list(range(low, min(high, low + step * MOST_VALUES) + 1, step))
    steps = {(2 + odd) << power for power in range(25) for odd in (0, 1)}
    return sorted({low, high} | {size for size in steps if low < size < high})
