"""A captured step for readers: what its time is made of, from kernel to operator to line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernel_compass.analysis.step_groups import StepGroup
from kernel_compass.analysis.step_shares import StepRow, joined_share, step_rows, workloads_of
from kernel_compass.records.profile import KernelProfile
from kernel_compass.records.step_capture import SourceLine, StepCapture
from kernel_compass.report.fitting import cut_name
from kernel_compass.report.names import short_names
from kernel_compass.report.phrases import count_text, plain, share_text
from kernel_compass.units import MISSING, duration_text

SHOWN = 25
GROUPS_SHOWN = 8
_GAP = "  "


def text_of(
    capture: StepCapture, groups: Sequence[StepGroup] = (), width: int = 100, all_rows: bool = False
) -> str:
    """The capture as text, lines of at most `width` columns where a table allows it."""
    lines = [*_heading(capture), "", *_table(capture, width, all_rows)]
    lines += _groups(capture, groups, width)
    lines += _rest(capture)
    return "\n".join(plain(line).rstrip() for line in lines) + "\n"


def _heading(capture: StepCapture) -> Iterator[str]:
    device = capture.environment.device.name or "no GPU"
    yield f"{capture.program}: a step is {capture.step}, on {device}"
    parts = [count_text(len(capture.ops), "operator")]
    parts += [count_text(len(capture.launches), "Triton launch")] if capture.launches else []
    parts += [count_text(len(capture.regions), "region")] if capture.regions else []
    products = workloads_of(capture)
    parts += [count_text(len(products), "product")] if products else []
    if capture.step_us is not None:
        parts.append(f"{duration_text(capture.step_us)} a step over {capture.steps}")
    if capture.idle_us is not None:
        parts.append(f"GPU idle {duration_text(capture.idle_us)} of it")
    if capture.in_graph:
        parts.append("in a CUDA graph")
    yield ", ".join(parts) + "."
    share = joined_share(capture)
    if share:
        yield f"{share_text(share)} of the kernels' time is joined to a line."


def _table(capture: StepCapture, width: int, all_rows: bool) -> Iterator[str]:
    if not capture.kernels:
        yield from _ops_table(capture, width, all_rows)
        return
    rows = step_rows(capture)
    shown = rows if all_rows else rows[:SHOWN]
    heads = ("#", "kernel", "launches", "time", "share", "limiter", "headroom", "operator", "line")
    names = _names(shown)
    yield from _laid_out(heads, [_cells(n, r, names) for n, r in enumerate(shown, 1)], width)
    if len(shown) < len(rows):
        left = sum(row.share or 0.0 for row in rows[len(shown) :])
        yield f"and {len(rows) - len(shown)} more, {share_text(left)} of the time"


def _names(rows: Sequence[StepRow]) -> dict[str, str]:
    """Short names that tell the kernels apart."""
    full = list(dict.fromkeys(row.name for row in rows))
    return dict(zip(full, short_names([_profile(name) for name in full]), strict=True))


def _profile(name: str) -> KernelProfile:
    return KernelProfile(name, None, None, None, 1, None, {})


def _cells(number: int, row: StepRow, names: Mapping[str, str]) -> tuple[str, ...]:
    headroom = row.headroom
    return (
        str(number),
        names[row.name],
        f"{row.launches:g}",
        duration_text(row.time_us),
        share_text(row.share),
        row.limiter or MISSING,
        MISSING if headroom is None else f"{headroom:.1f}x",
        (row.op or MISSING).removeprefix("aten::"),
        MISSING if row.line is None else row.line.text,
    )


def _ops_table(capture: StepCapture, width: int, all_rows: bool) -> Iterator[str]:
    """Without a GPU: which line runs which operators; views are left out."""
    products = workloads_of(capture)
    found: dict[tuple[str, SourceLine | None, str | None, str], list[int]] = {}
    for op in capture.ops:
        inputs = {one.storage for one in op.inputs}
        if op.writes or not op.outputs or any(o.storage not in inputs for o in op.outputs):
            product = products[op.index].shape_text if op.index in products else ""
            found.setdefault((op.name, op.line, op.module, product), []).append(op.index)
    cells = [
        (
            name.removeprefix("aten::"),
            str(len(members)),
            product,
            MISSING if line is None else line.text,
            module or "",
        )
        for (name, line, module, product), members in found.items()
    ]
    shown = cells if all_rows else cells[: 2 * SHOWN]
    yield from _laid_out(("operator", "calls", "product", "line", "module"), shown, width)
    if len(shown) < len(cells):
        yield f"and {len(cells) - len(shown)} more"


def _laid_out(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Columns; the second gives way where the width is not enough."""
    sizes = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rest = sum(sizes) - sizes[1] + len(_GAP) * (len(sizes) - 1)
    if heads[1] == "kernel":
        sizes[1] = min(sizes[1], max(width - rest, 24))
    for row in (heads, *rows):
        cells = [
            cut_name(cell, size).ljust(size) if at == 1 else cell.ljust(size)
            for at, (cell, size) in enumerate(zip(row, sizes, strict=True))
        ]
        yield _GAP.join(cells)


def _groups(capture: StepCapture, groups: Sequence[StepGroup], width: int) -> Iterator[str]:
    if not groups:
        return
    yield ""
    yield "Runs of launch-bound kernels, each one candidate:"
    total = capture.step_us or sum(kernel.time_us for kernel in capture.kernels)
    heads = ("saves at most", "of the step", "launches", "time", "gaps", "from", "to", "module")
    rows = []
    for group in groups[:GROUPS_SHOWN]:
        launches = sum(capture.kernels[at].launches for at in group.kernels)
        share = group.saves_at_most_us / total if total else None
        rows.append(
            (
                duration_text(group.saves_at_most_us),
                share_text(share),
                f"{launches:g}",
                duration_text(group.time_us),
                duration_text(group.gap_us),
                group.first_line.text if group.first_line else MISSING,
                group.last_line.text if group.last_line else MISSING,
                group.module or "",
            )
        )
    yield from _laid_out(heads, rows, width)
    if len(groups) > GROUPS_SHOWN:
        yield f"and {len(groups) - GROUPS_SHOWN} more"


def _rest(capture: StepCapture) -> Iterator[str]:
    if capture.regions:
        yield ""
        yield "Regions, handled as a whole:"
        for region in capture.regions:
            where = "" if region.line is None else f", {region.line.text}"
            yield f"  {region.kind.value} {region.name}{where}, {count_text(region.calls, 'call')}"
    if capture.launches:
        yield ""
        yield "Triton kernels of the program:"
        kernels = {(one.kernel, one.kernel_line): one for one in capture.launches}
        for (name, line), one in kernels.items():
            config = " ".join(f"{key}={value}" for key, value in one.config.items())
            choices = f", of {len(one.choices)} by autotune" if one.choices else ""
            yield f"  {name}, {line.file}:{line.line}: {config}{choices}"
    if capture.not_handled:
        yield ""
        yield "Not handled:"
        for lost in capture.not_handled:
            where = "" if lost.line is None else f"{lost.line.text}: "
            yield f"  {where}{lost.what}: {lost.why}"
    for note in capture.notes:
        yield f"note: {note}"
