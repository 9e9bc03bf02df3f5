"""Where a report goes: standard output with its width and colours, or a file written whole."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import typer

from kernel_compass.access import access_remedy
from kernel_compass.cli.exit_codes import ExitCode
from kernel_compass.errors import UsageError
from kernel_compass.report.formats import Format
from kernel_compass.report.render import DEFAULT_WIDTH

_BY_SUFFIX = {
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".csv": Format.CSV,
}


def suffixes() -> tuple[str, ...]:
    """Endings of file names that say a form."""
    return tuple(_BY_SUFFIX)


STDOUT = Path("-")
"""`--output -`: standard output, by its usual name."""


def chosen_format(format: Format | None, json: bool, output: Path | None) -> Format:
    """The format asked for, else that of the output's suffix, else the terminal's.

    Raises:
        UsageError: `--json` beside another `--format`.
    """
    if json and format not in (None, Format.JSON):
        raise UsageError(
            f"--json and --format {format} contradict each other.", "Give one of them."
        )
    if json:
        return Format.JSON
    if format is not None:
        return format
    return (
        Format.TERMINAL
        if output is None
        else _BY_SUFFIX.get(output.suffix.lower(), Format.TERMINAL)
    )


def width_of(stream: TextIO | None) -> int:
    """COLUMNS if set, else the terminal's width, else 100."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if not _is_terminal(stream):
        return DEFAULT_WIDTH
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def color_of(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to colour: NO_COLOR forbids, FORCE_COLOR and CLICOLOR_FORCE force, else a terminal.

    Args:
        stream: where the text goes; `None` for a file.
        environ: the environment variables.
    """
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if environ.get("CLICOLOR") == "0" or environ.get("TERM") == "dumb":
        return False
    return _is_terminal(stream)


def prepare(output: Path | None, option: str = "--output", regular: bool = False) -> None:
    """Fail early where the file cannot be written; creates missing parent folders, and says so.

    Args:
        output: the file; `None` and `-` are none.
        option: what names it.
        regular: whether devices and pipes are refused.

    Raises:
        UsageError: the path is a folder, or its folder cannot be written.
    """
    if output is None or output == STDOUT:
        return
    try:
        if output.is_dir():
            found = f"{option} {output} is a folder."
            raise UsageError(found, f"Name a file, for example {option} {output / 'report.json'}.")
        known = output.parent.exists()
        output.parent.mkdir(parents=True, exist_ok=True)  # raises where it is a file
        if not known:
            typer.echo(f"Created the folder {output.parent}.", err=True)
        special = output.exists() and not output.is_file()
    except OSError as error:
        raise _unwritable(output, error, option) from None
    if special and regular:
        raise UsageError(f"{option} {output} is no regular file.", "Name a file.")
    if not os.access(output if special else output.parent, os.W_OK):
        denied = PermissionError(errno.EACCES, "")
        remedy = access_remedy(output, denied, "name another file", writing=not special)
        raise UsageError(f"{option} {output} is not writable.", remedy)


def emit(text: str, output: Path | None, utf8: bool = True) -> None:
    """Write a report to the file, or to standard output.

    Args:
        text: the report.
        output: the file; `None` = standard output.
        utf8: whether standard output gets UTF-8 whatever its encoding (data, not a picture).

    Raises:
        UsageError: the file cannot be written.
        typer.Exit: nobody reads standard output any more.
    """
    if output is None or output == STDOUT:
        _to_stdout(text, utf8)
        return
    write(text.encode("utf-8", "replace"), output)


def write(data: bytes, output: Path) -> None:
    """Write a file whole; a device or a pipe is written to, and nobody is waited for to read it.

    Raises:
        UsageError: it cannot be written, or is a pipe that nothing reads.
    """
    try:
        _to_file(data, output)
    except OSError as error:
        raise _unwritable(output, error) from None


def _to_stdout(text: str, utf8: bool) -> None:
    stream = sys.stdout
    if stream is None:  # the shell's `>&-`
        raise typer.Exit(ExitCode.BROKEN_PIPE)
    encoding = "utf-8" if utf8 else stream.encoding or "utf-8"
    try:
        stream.flush()
        stream.buffer.write(text.encode(encoding, "replace"))
        stream.buffer.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit and would complain then.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


def _to_file(data: bytes, output: Path) -> None:
    """A regular file is replaced whole; a device or pipe is written to."""
    target = output.resolve()
    if target.exists() and not target.is_file():
        _to_special(data, target)
        return
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _to_special(data: bytes, target: Path) -> None:
    number = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe waits otherwise
    with os.fdopen(number, "wb") as file:
        os.set_blocking(number, True)
        file.write(data)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _unwritable(output: Path, error: OSError, option: str = "--output") -> UsageError:
    why = "it is a pipe that nothing reads" if error.errno == errno.ENXIO else error.strerror
    found = f"{option} {output} cannot be written: {why or error}."
    otherwise = f"name another file, or leave {option} out"
    return UsageError(found, access_remedy(output, error, otherwise, writing=True))


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether it is one; a closed or missing stream is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
