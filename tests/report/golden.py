"""Pictures of outputs, kept as text. KERNEL_COMPASS_UPDATE_GOLDEN=1 draws them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text is what the file of this name holds."""
    path = FOLDER / name
    if os.environ.get("KERNEL_COMPASS_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs; look, then redraw it"
