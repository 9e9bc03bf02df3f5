"""Files that the documents name are where they say, from the root of a checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
ELSEWHERE = {
    "compass.json",  # a user's dispatch table
    "config.json",  # a model's
    "example.py",  # a user's
    "nvidia-h200-580.65.06.json",  # of a user's calibrations
}
"""Files that are no part of a checkout."""
PATH = re.compile(r"[\w./~-]*\w\.(?:py|json)")


def named(text: str) -> Iterator[str]:
    """Paths in backticks and scripts of indented commands, but for outputs and `FILE.json`."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    commands = re.findall(r"^    (?:.* )?(python \S+)", prose, re.MULTILINE)
    spans = [*re.findall(r"`([^`\n]+)`", prose), *commands]
    for span in spans:
        words = span.split()
        for before, word in zip(["", *words], words, strict=False):
            written = before in ("--output", "-o", "--plot")
            if PATH.fullmatch(word) and not written and not Path(word).stem.isupper():
                yield word


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document: Path) -> None:
    missing = {
        path
        for path in named(document.read_text(encoding="utf-8"))
        if path not in ELSEWHERE and not (ROOT / path).is_file()
    }
    assert missing == set()


def test_what_counts_as_a_name() -> None:
    text = (
        "`a/b.py` and `python c.py --data DIR`, `--output x.json`, `FILE.json`\n\n    python d.py\n"
    )
    assert list(named(text)) == ["a/b.py", "c.py", "d.py"]
    assert sum(len(list(named(path.read_text(encoding="utf-8")))) for path in DOCUMENTS) > 30
