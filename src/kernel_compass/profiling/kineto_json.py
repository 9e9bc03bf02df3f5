"""A trace file as batches of events, in memory bounded by the batch and not by the file.

A valid prefix of a JSON array becomes a valid array by a closing bracket only between two
elements. So the last place in the buffer that looks like such a boundary is tried, and the decoder
decides; a boundary inside a string or a nested value never passes.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import NoReturn

import msgspec
from msgspec import Raw

from kernel_compass.errors import AmbiguousCapture, DamagedCapture, NotATimeline
from kernel_compass.profiling.kineto_structs import Event, Header, SecondEvents
from kernel_compass.profiling.text_source import TextSource, reason_of

BLOCK = 4 << 20
"""Bytes read at once."""
MAX_EVENT = 64 << 20
"""Bytes without the end of an event after which nothing is expected any more."""
TOO_DEEP = "values are nested too deeply"
RECORD_AGAIN = "Record it again: kernel-compass profile --no-counters --save FOLDER SCRIPT."

EVENTS = "traceEvents"
_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_COMMA = re.compile(rb"\s*,\s*")
_AT_BYTE = re.compile(r"\(byte (\d+)\)")
_TRIES = 200
_NO_NUMBER = re.compile(rb"(?<=[:,\[\s])-?(?:nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_ESCAPE = re.compile(rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_CONTROL = re.compile(rb"[\x00-\x1f]")

Batch = tuple[list[Event], int, bool]
"""Events, how many bytes of the buffer they took, whether the array ended with them."""


class TraceFile:
    """The events of one file, once, in order.

    Args:
        source: the file; its head must look like JSON.
    """

    def __init__(self, source: TextSource) -> None:
        self._path = source.path
        self._blocks = source.blocks(BLOCK)
        self._decoder = msgspec.json.Decoder(list[Event])
        self._buffer = b""
        self._offset = 0
        self._in_events = False
        self.header = Header()
        """Complete once the events are through."""
        self.events = 0
        """How many were read."""
        self.repaired = False
        """Whether something that JSON does not allow was read all the same."""

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events.

        Raises:
            NotATimeline: it is JSON without `traceEvents`, or no JSON.
            DamagedCapture: it is cut off or malformed.
        """
        self._fill()
        self._drop(3 if self._buffer.startswith(b"\xef\xbb\xbf") else 0)
        self._drop(len(self._buffer) - len(self._buffer.lstrip()))
        in_object = self._buffer.startswith(b"{")
        if in_object:
            self._find_events()
        else:
            self._drop(1)
        self._in_events = True
        yield from self._through_the_array()
        self._in_events = False
        self._finish(in_object)

    def _fill(self) -> bool:
        """Read more; whether there was more."""
        try:
            block = next(self._blocks, b"")
        except DamagedCapture as error:
            cause = error.__cause__ or error
            if not isinstance(cause, EOFError):
                raise self._damaged(reason_of(cause), 0) from error
            raise self._cut(f": {reason_of(cause)}") from error
        self._buffer += block
        return bool(block)

    def _drop(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _find_events(self) -> None:
        """Move to the first event; keep what the members before it say."""
        start = 0
        while True:
            for found in _KEY.finditer(self._buffer, start):
                if self._read_header(self._buffer[: found.start()] + b'"traceEvents":[]}'):
                    self._drop(found.end())
                    return
            start = max(len(self._buffer) - 1024, 0)
            if len(self._buffer) > MAX_EVENT or not self._fill():
                self._no_events()

    def _read_header(self, data: bytes) -> bool:
        """Take over a header's members; whether these are a whole object."""
        try:
            header = msgspec.json.decode(data, type=Header)
        except msgspec.ValidationError:  # members of other types than ours are no reason to stop
            header = Header()
            try:
                msgspec.json.decode(data)
            except msgspec.DecodeError:
                return False
            except RecursionError:
                raise self._damaged(TOO_DEEP, 0) from None
        except msgspec.DecodeError:
            return False
        except RecursionError:
            raise self._damaged(TOO_DEEP, 0) from None
        self.header.gpus = header.gpus or self.header.gpus
        self.header.distributed = header.distributed or self.header.distributed
        return True

    def _no_events(self) -> NoReturn:
        try:
            members = msgspec.json.decode(self._buffer, type=dict[str, Raw])
        except msgspec.DecodeError as error:
            if "truncated" in str(error):
                raise self._cut(": the JSON ends before its events") from None
            raise NotATimeline(f"{self._path} is no JSON: {error}.", RECORD_AGAIN) from None
        except RecursionError:
            raise self._damaged(TOO_DEEP, 0) from None
        if EVENTS in members:
            start = bytes(members[EVENTS])[:20].decode("utf-8", "replace")
            found = f"{self._path} is no trace: its {EVENTS!r} is no array; it begins with {start}."
            raise NotATimeline(found, RECORD_AGAIN)
        names = ", ".join(map(repr, list(members)[:6])) or "nothing"
        raise NotATimeline(
            f"{self._path} is JSON, but no trace: it has no array 'traceEvents', only {names}.",
            "Hand in what torch.profiler's export_chrome_trace wrote, or an ncu capture.",
        )

    def _through_the_array(self) -> Generator[list[Event], None, None]:
        """Yield batches up to the end of the array, and leave what follows it in the buffer."""
        while True:
            batch = self._next_batch()
            if batch is None:
                if len(self._buffer) > MAX_EVENT:
                    raise self._damaged(f"no event ends within {MAX_EVENT >> 20} MiB", 0)
                if self._fill():
                    continue
                batch = self._decoded(len(self._buffer), close=False)
                if batch is None:
                    raise self._cut()
            events, taken, ended = batch
            self.events += len(events)
            yield events
            self._drop(taken)
            if ended:
                return
            comma = _COMMA.match(self._buffer)
            self._drop(comma.end() if comma else 0)

    def _next_batch(self) -> Batch | None:
        """As many whole events as the buffer holds, `None` where it holds the end of none."""
        position = len(self._buffer)
        for _ in range(_TRIES):
            while (position := self._buffer.rfind(b"}", 0, position)) > 0:
                if _BOUNDARY.match(self._buffer, position):
                    break
            else:
                return None
            if batch := self._decoded(position + 1, close=True):
                return batch
        return None

    def _decoded(self, length: int, close: bool, repair: bool = True) -> Batch | None:
        """The events in the first bytes of the buffer, `None` where these end inside one."""
        data = b"[" + self._buffer[:length] + (b"]" if close else b"")
        try:
            return self._decoder.decode(data), length, not close
        except msgspec.ValidationError as error:
            raise self._damaged(f"an event is not as events are: {error}", 0) from None
        except RecursionError:
            raise self._damaged(TOO_DEEP, 0) from None
        except msgspec.DecodeError as error:
            text, place = str(error), _AT_BYTE.search(str(error))
            at = int(place[1]) if place else 0
            if "trailing characters" in text:  # the array ended; the header's rest follows
                end = data.rindex(b"]", 0, at) + 1
                return self._decoder.decode(data[:end]), end - 1, True
            if "truncated" in text or (close and place and at >= len(data) - 1):
                return None
        if not repair:
            raise self._damaged(text, at)
        better = _repaired(self._buffer[:length])
        self._buffer = better + self._buffer[length:]
        self.repaired = True
        return self._decoded(len(better), close, repair=False)

    def _finish(self, in_object: bool) -> None:
        """Read what stands behind the events."""
        while self._fill():
            pass
        rest = self._buffer.strip()
        if not in_object and rest:
            raise self._damaged(f"text follows the events: {rest[:40]!r}", 0)
        if in_object:
            if not self._read_header(b'{"traceEvents":[]' + rest):
                self._refuse_rest(rest)
            self._refuse_second_events(rest)

    def _refuse_rest(self, rest: bytes) -> NoReturn:
        try:
            msgspec.json.decode(b'{"traceEvents":[]' + rest)
        except msgspec.DecodeError as error:
            if "trailing characters" in str(error):
                raise self._damaged("text follows its closing brace", 0) from None
        if rest.endswith(b"}"):
            raise self._damaged("what follows the events is no JSON", 0)
        raise self._cut(": the file ends behind its events, before its closing brace")

    def _refuse_second_events(self, rest: bytes) -> None:
        """Of members with one name, decoders keep the last: it must be the one that was read."""
        found = msgspec.json.decode(b'{"traceEvents":0' + rest, type=SecondEvents)
        if bytes(found.events) != b"0":
            raise AmbiguousCapture(
                f"{self._path} holds {EVENTS!r} twice: two traces were joined, and which of them "
                "is meant cannot be told.",
                "Hand in one file a trace: kernel-compass diagnose FOLDER reports each by itself.",
            )

    def _cut(self, why: str = "") -> DamagedCapture:
        read = self.events + self._last_events()
        return DamagedCapture(
            f"{self._path} is cut off{why}. {read:,} events could be read; what the GPU did after "
            "them is not known, so nothing is reported.",
            f"Copy it again. {RECORD_AGAIN}",
        )

    def _last_events(self) -> int:
        """Whole events that stand in the buffer still, where the file ends behind one."""
        if not self._in_events:
            return 0
        try:
            return len(self._decoder.decode(b"[" + self._buffer.rstrip().rstrip(b",") + b"]"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return 0

    def _damaged(self, what: str, at: int) -> DamagedCapture:
        where = f"after {self.events:,} events"
        if at:
            where += f", near byte {self._offset + at - 1:,}"
        return DamagedCapture(f"{self._path} is damaged {where}: {what}.", RECORD_AGAIN)


def _repaired(data: bytes) -> bytes:
    """Without what some writers put into JSON: nan, backslashes of paths, control characters,
    bytes that are no UTF-8."""
    data = _CONTROL.sub(b" ", _NO_NUMBER.sub(b"null", data))
    data = _ESCAPE.sub(lambda found: found[0] if len(found[0]) > 1 else b"\\\\", data)
    return data.decode("utf-8", "replace").encode()
