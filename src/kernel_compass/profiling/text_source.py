"""Bytes of a capture as lines of text: compression, encodings, line ends, bounded memory."""

from __future__ import annotations

import codecs
import gzip
import lzma
import stat
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from kernel_compass.access import access_remedy
from kernel_compass.errors import CaptureError, DamagedCapture, NotAMetricTable

MAX_LINE = 32 << 20
"""Characters; a raw page with every instance value stays far below."""

_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"
_XZ = b"\xfd7zXZ\x00"
_READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError)


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    """Decode what is not UTF-8 byte by byte: program output may be in any encoding."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("kernel_compass.latin1", _as_latin1)


class TextSource:
    """A regular file, plain or compressed by gzip or xz, read as text as often as needed.

    Args:
        path: the file.

    Raises:
        NotAMetricTable: missing, a directory, not a regular file, unreadable or empty.
        DamagedCapture: the compressed stream is broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _require_regular_file(path)
        raw = _read_head(path, None)
        self.compression = "gzip" if raw[:2] == _GZIP else "xz" if raw[: len(_XZ)] == _XZ else None
        self.head = _read_head(path, self.compression) if self.compression else raw
        """The first bytes after decompression."""
        self.unterminated = False
        """Whether the line that was yielded last had no line end: set when it is yielded."""
        if not self.head:
            raise NotAMetricTable(
                f"{path} is empty.", "If ncu wrote it, its log or exit code says why."
            )

    @property
    def encoding(self) -> str:
        """UTF-16 with or without a byte-order mark (PowerShell's `>`), else UTF-8."""
        head = self.head
        if head[:2] == codecs.BOM_UTF16_LE or head[:2] == codecs.BOM_UTF16_BE:
            return "utf-16"
        if len(head) >= 16 and head[1:200:2].count(0) > 0.7 * len(head[1:200:2]):
            return "utf-16-le"
        return "utf-8-sig"

    def blocks(self, size: int = _CHUNK) -> Iterator[bytes]:
        """Yield the content after decompression, in blocks of up to `size` bytes.

        Raises:
            DamagedCapture: broken compression, once all that could be decompressed was yielded.
        """
        with _open(self.path, self.compression) as stream:
            while True:
                block, error = _readable(stream, size)
                if block:
                    yield block
                if error is not None:
                    raise _unreadable(self.path, error) from error
                if not block:
                    return

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends.

        Raises:
            DamagedCapture: broken compression, NUL bytes, or a line over `MAX_LINE`.
        """
        self.unterminated = False
        errors = "kernel_compass.latin1" if self.encoding == "utf-8-sig" else "replace"
        decoder = codecs.getincrementaldecoder(self.encoding)(errors)
        rest = ""
        with _open(self.path, self.compression) as stream:
            while chunk := _read(stream, _CHUNK, self.path):
                text = rest + decoder.decode(chunk)
                lines = text.split("\n")
                rest = lines.pop()
                self._check(text, rest)
                if "\r" in text:
                    lines = [line.removesuffix("\r") for line in lines]
                yield from lines
        rest += decoder.decode(b"", final=True)
        if rest:
            self.unterminated = True
            yield rest.removesuffix("\r")

    def _check(self, text: str, rest: str) -> None:
        if "\0" in text:
            raise DamagedCapture(
                f"{self.path} contains NUL bytes: a partly written or binary file.",
                "Copy or export it again.",
            )
        if len(rest) > MAX_LINE:
            raise DamagedCapture(f"{self.path} has a line of more than {MAX_LINE >> 20} MiB.")


def _require_regular_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = access_remedy(path, error, "name another file")
        raise NotAMetricTable(f"{path} cannot be read: {reason}.", remedy) from error
    if stat.S_ISDIR(mode):
        raise NotAMetricTable(
            f"{path} is a directory.",
            "Name a capture file in it, or a folder that `kernel-compass profile --save` wrote.",
        )
    if not stat.S_ISREG(mode):
        raise NotAMetricTable(f"{path} is not a regular file.", "Write the capture to a file.")


def _open(path: Path, compression: str | None) -> BufferedIOBase:
    try:
        if compression == "gzip":
            return gzip.open(path, "rb")
        if compression == "xz":
            return lzma.open(path, "rb")
        return path.open("rb")
    except _READ_ERRORS as error:
        raise NotAMetricTable(f"{path} cannot be read: {error}.") from error


def _readable(stream: BufferedIOBase, size: int) -> tuple[bytes, BaseException | None]:
    """Up to so many bytes, fewer at the end or before what cannot be read: a plain `read` would
    lose what a cut archive still held."""
    pieces: list[bytes] = []
    left = size
    try:
        while left > 0 and (piece := stream.read1(left)):
            pieces.append(piece)
            left -= len(piece)
    except _READ_ERRORS as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


def _read(stream: BufferedIOBase, size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except _READ_ERRORS as error:
        raise _unreadable(path, error) from error


def _read_head(path: Path, compression: str | None) -> bytes:
    """The first bytes, as far as they can be read; who reads on learns what is wrong."""
    with _open(path, compression) as stream:
        head, error = _readable(stream, 1 << 16)
    if error is not None and not head:
        raise _unreadable(path, error) from error
    return head


def _unreadable(path: Path, error: BaseException) -> CaptureError:
    return DamagedCapture(
        f"{path} cannot be read to its end: {reason_of(error)}.", "Copy or compress it again."
    )


def reason_of(error: BaseException) -> str:
    """Why a file could not be read, without its name."""
    return (str(error) or type(error).__name__).rstrip(".")
