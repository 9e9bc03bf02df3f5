"""The files of `benchmarks/kernelbench_style`, and the sizes that stand at their tops."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "kernelbench_style"
_SIZE = re.compile(r"^(?P<name>[a-z_]+) = (?P<size>\d+)$", re.MULTILINE)


def problem_files() -> list[Path]:
    """All of them, in order."""
    return sorted(FOLDER.glob("[0-9]*.py"))


def sizes_of(path: Path) -> dict[str, int]:
    """A file's sizes by name."""
    return {one["name"]: int(one["size"]) for one in _SIZE.finditer(path.read_text())}


def smaller(text: str, most: int) -> str:
    """A file's text with every size at its top no larger than `most`."""

    def line(found: re.Match[str]) -> str:
        return f"{found['name']} = {min(int(found['size']), most)}"

    return _SIZE.sub(line, text)


def copied(path: Path, folder: Path, most: int) -> Path:
    """A smaller copy of a file, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / path.name
    copy.write_text(smaller(path.read_text(), most))
    return copy
