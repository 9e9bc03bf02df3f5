"""Where recorded ncu files lie, and how the tests take them apart and write them anew."""

from __future__ import annotations

import csv
import io
import lzma
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernel_compass.profiling.capture import read_capture
from kernel_compass.records.profile import KernelProfile, Profile

GOLDEN = Path(__file__).parent / "golden" / "ncu"
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"


def shared_folder(name: str) -> Path:
    """A folder of recordings that the repository does not hold; skips where it is absent."""
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"no {name} beside the repository")
    return folder


def golden_bytes(name: str) -> bytes:
    """The content of a recording, unpacked."""
    data = (GOLDEN / name).read_bytes()
    return lzma.decompress(data) if name.endswith(".xz") else data


@dataclass(frozen=True)
class Table:
    """A long or wide CSV capture in parts."""

    preamble: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Table:
        lines = text.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
        cells = [tuple(row) for row in csv.reader(lines[start:])]
        return cls(tuple(lines[:start]), cells[0], tuple(cells[1:]))

    def column(self, name: str) -> int:
        return self.header.index(name)

    def with_cells(self, name: str, cells: list[str]) -> Table:
        at = self.column(name)
        rows = (
            (*row[:at], cell, *row[at + 1 :]) for row, cell in zip(self.rows, cells, strict=True)
        )
        return replace(self, rows=tuple(rows))

    def cells(self, name: str) -> list[str]:
        at = self.column(name)
        return [row[at] for row in self.rows]

    def lines(self, quoting: int = csv.QUOTE_ALL) -> list[str]:
        """Preamble, header and rows, without line ends."""
        buffer = io.StringIO()
        csv.writer(buffer, quoting=quoting, lineterminator="\n").writerows(
            [self.header, *self.rows]
        )
        return [*self.preamble, *buffer.getvalue().splitlines()]

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"


def golden_table(name: str) -> Table:
    return Table.parse(golden_bytes(name).decode())


def read_text(folder: Path, text: str | bytes) -> Profile:
    """Read a capture made of that text."""
    path = folder / "capture.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_capture(path)


def assert_same_kernels(found: Profile, expected: Profile, rel: float = 1e-9) -> None:
    """Both profiles hold the same kernels, in the same order, up to rounding."""
    assert [_shape(k) for k in found.kernels] == [_shape(k) for k in expected.kernels]
    for ours, theirs in zip(found.kernels, expected.kernels, strict=True):
        assert ours.metrics == pytest.approx(dict(theirs.metrics), rel=rel, abs=1e-12)
        if theirs.duration_stats is None:
            assert ours.duration_stats is None
        else:
            assert ours.duration_stats is not None
            assert vars(ours.duration_stats) == pytest.approx(vars(theirs.duration_stats), rel=rel)
        assert ours.rules == theirs.rules


def _shape(kernel: KernelProfile) -> tuple[object, ...]:
    return (kernel.name, kernel.grid, kernel.block, kernel.device, kernel.launches)
