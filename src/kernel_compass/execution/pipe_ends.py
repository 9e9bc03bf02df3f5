"""Our ends of a worker's pipes: never waited for, never read beyond what is bounded."""

from __future__ import annotations

import os

from kernel_compass.execution.task_pipes import LARGEST_LINE, TAIL_LINES

_CHUNK = 1 << 16
_TAIL_BYTES = 64 << 10


class Reader:
    """Bytes as they come.

    Args:
        number: file descriptor of a pipe; it is closed by `close`.
    """

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        self.is_closed = False
        """Whether nobody holds the other end any more."""

    def read(self) -> bytes:
        """What there is, at most some 64 KiB; empty = nothing now."""
        try:
            chunk = os.read(self.number, _CHUNK)
        except BlockingIOError:
            return b""
        self.is_closed = not chunk
        return chunk

    def close(self) -> None:
        """Close our end."""
        os.close(self.number)


class LineReader(Reader):
    """Lines as they are complete."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_too_long(self) -> bool:
        """Whether a line has more than `LARGEST_LINE` bytes."""
        return self._size > LARGEST_LINE

    def lines(self) -> list[bytes]:
        """Those that ended in what there is now."""
        first, *others = self.read().split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        found = []
        for other in others:
            found.append(b"".join(self._parts))
            self._parts, self._size = [other], len(other)
        return found


class OutputReader(Reader):
    """What a worker says on standard output and standard error: counted, and its end kept."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.bytes_read = 0
        """Since the last `restart`."""
        self._tail = b""

    def take(self) -> None:
        """Read what there is."""
        chunk = self.read()
        self.bytes_read += len(chunk)
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    def restart(self) -> None:
        """Count from nothing: what is read from now on is another task's."""
        while self.read():
            continue
        self.bytes_read, self._tail = 0, b""

    def last_lines(self) -> tuple[str, ...]:
        """The last ones that are not blank."""
        said = [line.strip() for line in self._tail.decode("utf-8", "replace").splitlines()]
        return tuple([line for line in said if line][-TAIL_LINES:])


class Writer:
    """Bytes as there is room for them.

    Args:
        number: file descriptor of a pipe; it is closed by `close`.
    """

    def __init__(self, number: int) -> None:
        os.set_blocking(number, False)
        self.number = number
        self._rest = memoryview(b"")

    @property
    def has_more(self) -> bool:
        """Whether something waits for room."""
        return len(self._rest) > 0

    def put(self, data: bytes) -> None:
        """Write this next, instead of what is left of the last."""
        self._rest = memoryview(data)

    def write(self) -> None:
        """Write what there is room for."""
        try:
            self._rest = self._rest[os.write(self.number, self._rest[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # its reader is gone; how it ended is told elsewhere
            self._rest = memoryview(b"")

    def close(self) -> None:
        """Close our end."""
        os.close(self.number)
