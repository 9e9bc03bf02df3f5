"""Files whose code the user agreed to run, remembered by their SHA-256.

A file in `agreed/` of the user's data folder for each: another content is another file.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernel_compass.errors import UsageError
from kernel_compass.optimizer.ledger_home import data_folder, unreadable_home
from kernel_compass.optimizer.ledger_lock import unwritable

AGREED = "agreed"


def agreed(sha256: str) -> bool:
    """Whether the user agreed to run what has this hash.

    Raises:
        StudyError: the user has no data folder, or may not enter it.
    """
    place = data_folder() / AGREED / sha256
    try:
        return place.is_file()
    except OSError as error:
        raise unreadable_home(place.parent, error) from None


def agree(sha256: str, path: Path) -> None:
    """Remember it; the path is kept for whoever looks.

    Raises:
        StudyError: it cannot be written.
    """
    folder = data_folder() / AGREED
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            file.write(f"{path}\n")
        os.replace(file.name, folder / sha256)  # noqa: PTH105
    except OSError as error:
        raise unwritable(folder, error) from None


def not_agreed(path: Path, sha256: str) -> UsageError:
    """Why a file is not run where nobody can be asked."""
    return UsageError(
        f"{path} (SHA-256 {sha256}) is code and was never run here; nobody is there to be asked.",
        "Look at it, then pass --yes; it is remembered for this content.",
    )
