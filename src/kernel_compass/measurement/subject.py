"""What is timed: a callable with its operands, and the sets that a cold regime cycles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.carried import carried_objects
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.records.trial import Reason
from kernel_compass.units import bytes_text

GIB = 1 << 30
COLD_L2_MULTIPLE = 8
"""Rotated sets total at least this many times the L2 capacity."""
ROTATION_BYTES = GIB
"""... and this much by default: more than any cache keeps in part."""
MOST_SETS = 4096
"""A replay launches each set once, and capturing a launch takes some 10 us."""


class Renewed(Protocol):
    """Operands of a launch that hold other contents now, and what it should make of them."""

    def spoil(self, result: Any) -> None:
        """Overwrite what an earlier launch returned, where it lies."""

    def fault(self, result: Any) -> tuple[Reason, str] | None:
        """What is wrong with a result, in a sentence; `None` = nothing."""


@dataclass(frozen=True)
class Subject:
    """One launch: `run(*streamed, *resident, *outputs)`.

    A callable that takes no operands has none here; it can be timed warm, in situ, and cold by
    flushing, and its inputs are checked only as far as its closure shows them.
    """

    run: Callable[..., object]
    streamed: tuple[Any, ...] = ()
    """Operands whose place decides the regime: weights, scales, KV cache."""
    resident: tuple[Any, ...] = ()
    """Inputs that are warm in every regime: activations."""
    outputs: tuple[Any, ...] = ()
    """Written, never read: their values are not checked."""
    sets: tuple[tuple[Any, ...], ...] = ()
    """Ready-made further sets of `streamed`, for operands that a copy does not reproduce."""
    between: tuple[Callable[[], object], ...] = ()
    """What precedes each launch in the program; used in situ alone."""
    renew: Callable[[Sequence[Any]], Renewed] | None = None
    """Writes other contents into the streamed and resident operands of a launch, to see whether
    what is timed is right; `None` = nobody can tell."""

    def call(self, streamed: Sequence[Any]) -> Callable[[], object]:
        """The launch on one set of streamed operands, as a call without arguments."""
        operands = (*streamed, *self.resident, *self.outputs)
        return lambda: self.run(*operands)

    @property
    def first_call(self) -> Callable[[], object]:
        """The launch on the first set."""
        return self.call(self.streamed)


def subject_of(timed: Subject | Callable[[], object]) -> Subject:
    """A subject as it is; a callable as a subject without operands."""
    return timed if isinstance(timed, Subject) else Subject(timed)


def streamed_bytes(subject: Subject, device: TimingDevice) -> int:
    """Bytes of one set of streamed operands."""
    return sum(device.bytes_of(operand) for operand in subject.streamed)


def rotation(
    subject: Subject, device: TimingDevice, total_bytes: int | None = None
) -> tuple[tuple[Any, ...], ...]:
    """Sets of streamed operands that together exceed L2 by far: copies, or the subject's own.

    Args:
        subject: with streamed operands.
        device: where they lie.
        total_bytes: of all sets; default `ROTATION_BYTES`, at least 8 times L2.

    Raises:
        MeasurementError: nothing to rotate or overlapping sets (`not_cold`); too little memory.
    """
    one = streamed_bytes(subject, device)
    _check_operands(subject, device)
    if one == 0:
        raise MeasurementError(
            MeasurementCause.NOT_COLD,
            "A cold time by rotation needs the streamed operands, and none are named.",
            "Name them in Subject(streamed=...), or time cold by flushing (ColdMethod.FLUSH).",
        )
    least = COLD_L2_MULTIPLE * device.l2_bytes
    wanted = max(least, total_bytes if total_bytes is not None else ROTATION_BYTES)
    own = (subject.streamed, *subject.sets)
    sets = own if subject.sets else _copies(subject, device, one, wanted, least)
    _check_disjoint(sets, device)
    total = sum(device.bytes_of(operand) for one_set in sets for operand in one_set)
    if total < least:
        raise MeasurementError(
            MeasurementCause.NOT_COLD,
            f"{len(sets)} sets of streamed operands total {bytes_text(total)}, and L2 holds "
            f"{bytes_text(device.l2_bytes)}: launches would find them there.",
            f"Give sets that total {bytes_text(least)} or more.",
        )
    return sets


def is_too_small(subject: Subject, device: TimingDevice) -> bool:
    """Whether as many sets of streamed operands as there can be do not exceed L2 by far."""
    most = 1 + len(subject.sets) if subject.sets else MOST_SETS
    return 0 < most * streamed_bytes(subject, device) < COLD_L2_MULTIPLE * device.l2_bytes


def set_count(one_bytes: int, wanted_bytes: int) -> int:
    """Sets of `one_bytes` that total `wanted_bytes` or more; two at least.

    A power of two, so that two subjects cycle their sets in a common number of launches.
    """
    enough = max(math.ceil(wanted_bytes / one_bytes), 2)
    return 1 << (enough - 1).bit_length()


def _copies(
    subject: Subject, device: TimingDevice, one: int, wanted: int, least: int
) -> tuple[tuple[Any, ...], ...]:
    if is_too_small(subject, device):
        raise MeasurementError(
            MeasurementCause.NOT_COLD,
            f"One set of streamed operands has {bytes_text(one)}: {least // one} copies would be "
            f"needed to exceed L2 by far, and {MOST_SETS} is the limit.",
            "Time it cold by flushing (ColdMethod.FLUSH).",
        )
    room = device.free_bytes() * 9 // 10
    if room < least:
        raise _no_room(least, room)
    span = max(sum(e - s for s, e in map(device.address_range, subject.streamed)), one)
    count = min(set_count(one, wanted), MOST_SETS)
    while count > 2 and count * span > room:
        count //= 2
    if count * one < least:  # the next power of two has no room: as many as it takes
        count = math.ceil(least / one)
        if count * span > room:
            raise _no_room(count * span, room)
    copies = [tuple(map(device.clone, subject.streamed)) for _ in range(count - 1)]
    return (subject.streamed, *copies)


def _no_room(needed: int, room: int) -> MeasurementError:
    return MeasurementError(
        MeasurementCause.OUT_OF_MEMORY,
        f"Rotation needs {bytes_text(needed)} and {bytes_text(room)} are free on the GPU.",
        "Free memory, or time cold by flushing (ColdMethod.FLUSH).",
    )


def _check_operands(subject: Subject, device: TimingDevice) -> None:
    """What hides its tensors would be shared by all sets, and so stay warm."""
    for index, operand in enumerate(subject.streamed):
        inside = carried_objects(operand, without=device)
        if device.bytes_of(operand) == 0 and any(device.bytes_of(o) > 0 for o in inside):
            raise MeasurementError(
                MeasurementCause.NOT_COLD,
                f"Streamed operand {index} is a {type(operand).__name__} with tensors in it, which "
                "rotation does not copy.",
                "Name the tensors themselves in Subject(streamed=...), or give Subject(sets=...).",
            )


def _check_disjoint(sets: Sequence[Sequence[Any]], device: TimingDevice) -> None:
    """No byte may belong to two sets: a shared one would be warm."""
    ranges = sorted(_ranges(sets, device))
    for (_, end, one), (start, _, other) in pairwise(ranges):
        if start < end and one != other:
            raise MeasurementError(
                MeasurementCause.NOT_COLD,
                f"Sets {one} and {other} of the streamed operands share memory.",
                "Give each set operands of its own.",
            )


def _ranges(sets: Sequence[Sequence[Any]], device: TimingDevice) -> Iterator[tuple[int, int, int]]:
    for index, operands in enumerate(sets):
        for operand in operands:
            start, end = device.address_range(operand)
            yield start, end, index
