"""Where studies are kept: the user's data folder.

$KERNEL_COMPASS_HOME, else $XDG_DATA_HOME/kernel-compass, else ~/.local/share/kernel-compass
    studies/<identifier>/ledger.sqlite
    rejected.sqlite
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kernel_compass.access import access_remedy
from kernel_compass.codec.study_document import IDENTIFIER
from kernel_compass.errors import StudyError, UsageError, shortened

HOME_VARIABLE = "KERNEL_COMPASS_HOME"
LEDGER = "ledger.sqlite"
ELSEWHERE = f"keep studies elsewhere: export {HOME_VARIABLE}=FOLDER"
LAST = "last"
"""What a command calls the study that was changed last."""
_LONGEST_SLUG = 40


def data_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's studies and of what was rejected; it need not exist.

    Raises:
        StudyError: the user has no home folder, and none is named.
    """
    try:
        if named := environ.get(HOME_VARIABLE):
            return Path(named).expanduser()
        xdg = Path(environ.get("XDG_DATA_HOME") or "")
        if xdg.is_absolute():  # the XDG specification: a relative one is ignored
            return xdg / "kernel-compass"
        home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    except RuntimeError:
        found = "This user has no home folder to keep studies in."
        raise StudyError(found, f"Set {HOME_VARIABLE} to a folder that can be written.") from None
    return home / ".local" / "share" / "kernel-compass"


def studies_folder() -> Path:
    """The folder with a folder for every study."""
    return data_folder() / "studies"


def new_identifier(target: str) -> str:
    """A name for a new study, from the time, what it is about and a random end."""
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    words = re.sub(r"[^a-z0-9]+", "-", Path(target).name.lower()).strip("-")[:_LONGEST_SLUG]
    return "-".join(filter(None, (now, words.strip("-"), secrets.token_hex(2))))


def folder_of(identifier: str) -> Path:
    """The folder of a study of this user, whether it exists or not.

    Raises:
        UsageError: no study can have this name.
    """
    if IDENTIFIER.fullmatch(identifier) is None:
        found = f"{shortened(identifier)!r} cannot be a study's name."
        raise UsageError(found, "Use lower-case letters, digits, `.`, `_` and `-`.")
    return studies_folder() / identifier


def study_folders() -> tuple[Path, ...]:
    """The folders of all studies that have a ledger, the one changed last at the end.

    Raises:
        StudyError: the folder cannot be read.
    """
    try:
        found = [one for one in studies_folder().iterdir() if _may_be_one(one)]
        return tuple(sorted(found, key=lambda one: (_changed(one), one.name)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable_home(studies_folder(), error) from None


def unreadable_home(path: Path, error: OSError) -> StudyError:
    """The error for a folder of the user's data that may not be entered."""
    found = f"{shortened(str(path))} cannot be read: {error.strerror or error}."
    return StudyError(found, access_remedy(path, error, ELSEWHERE))


def find_study(name: str) -> Path:
    """The folder of a study by its name, the beginning of it, `last`, or a path.

    Raises:
        StudyError: there is none, or there are several.
    """
    given = Path(name).expanduser() if name else Path(os.devnull)
    if os.sep in name and _is_folder(given):
        return _of_a_study(given)
    known = {one.name: one for one in study_folders()}
    if name in known:
        return known[name]
    if name == LAST and known:
        return list(known.values())[-1]
    near = [one for one in known if name and one.startswith(name)]
    if len(near) == 1:
        return known[near[0]]
    if len(near) > 1:
        found = f"{shortened(name)!r} is the beginning of {len(near)} studies: {', '.join(near)}."
        raise StudyError(found, "Write more of its name.")
    beside = ""
    if name and os.sep not in name and _is_folder(given):
        beside = f"; the folder is meant where it is written as .{os.sep}{name}"
    elif os.sep in name:
        beside = ", and that is no folder of one"
    raise StudyError(
        f"There is no study {shortened(name)!r} in {studies_folder()}{shortened(beside)}.",
        "`kernel-compass history` lists those that are there.",
    )


def _of_a_study(folder: Path) -> Path:
    """A folder that is named by its path: with a ledger, or among the user's studies."""
    try:
        is_one = (folder / LEDGER).exists() or folder.resolve().parent == studies_folder().resolve()
    except OSError as error:
        raise unreadable_home(folder, error) from None
    if is_one:
        return folder
    raise StudyError(
        f"The folder {shortened(str(folder))} is none of a study: it has no {LEDGER}.",
        "Name a study, or its folder; `kernel-compass history` lists those that are there.",
    )


def _may_be_one(folder: Path) -> bool:
    """Whether there is a ledger, or a folder that may not be entered: it is named, not hidden."""
    try:
        return (folder / LEDGER).exists()
    except PermissionError:
        return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name too long, or with a NUL
        return False


def _changed(folder: Path) -> int:
    """When the ledger was written last; its write-ahead log is the newer part of it."""
    times = [0]
    for name in (LEDGER, f"{LEDGER}-wal"):
        try:
            times.append((folder / name).stat().st_mtime_ns)
        except OSError:
            continue
    return max(times)
