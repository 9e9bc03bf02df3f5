"""What may not be read or written: what stands in the way, and the next command."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from shlex import quote

from kernel_compass.errors import UsageError, shortened

_DENIED = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


def access_remedy(path: Path, error: Exception, otherwise: str, writing: bool = False) -> str:
    """The command that shows who may, where it is about that, and what else can be done.

    Args:
        path: what was to be read or written.
        error: why it could not be.
        otherwise: another way out, as a part of a sentence: `name another file`.
        writing: a file is replaced, which takes the right to write its folder.
    """
    if not (isinstance(error, OSError) and error.errno in _DENIED):
        return f"{otherwise[:1].upper()}{otherwise[1:]}."
    place = quote(str(_obstacle(path, writing)))
    return f"`ls -ld {place}` shows who may; change that where it is yours, or {otherwise}."


def unreadable(path: Path, error: OSError, otherwise: str = "name another file") -> UsageError:
    """The error for a file that cannot be read."""
    found = f"{shortened(str(path))} cannot be read: {error.strerror or error}."
    return UsageError(found, access_remedy(path, error, otherwise))


def is_file(path: Path, otherwise: str = "name another file") -> bool:
    """Whether there is such a file.

    Raises:
        UsageError: a folder on the way may not be entered, or no file can be called so.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise unreadable(path, error, otherwise) from None


def _obstacle(path: Path, writing: bool) -> Path:
    """The file, or the deepest folder on the way to it that can be seen."""
    whole = path.absolute()
    ways = whole.parents if writing and not os.access(whole.parent, os.W_OK) else [whole]
    for one in (*ways, *whole.parents):
        try:
            one.lstat()
        except OSError:
            continue
        return one
    return whole
