"""What must hold before a time means anything. In-process: stops accidents, not hostile code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.device import TimingDevice
from kernel_compass.measurement.subject import Subject
from kernel_compass.units import bytes_text

NO_WORK_CALLS = 16
NO_WORK_US = 0.25
"""Less GPU time than this a call is no launch: the shortest kernel takes over 0.5 us."""


def check_subject(subject: Subject, device: TimingDevice) -> tuple[str, ...]:
    """Examine a subject before it is timed.

    Returns:
        What could not be examined, in words.

    Raises:
        MeasurementError: with the cause that was found.
    """
    _check_inputs(subject, device)
    device.run(subject.first_call)
    _check_does_work(subject, device)
    _check_carve_out(device)
    return _check_streams(subject, device)


def _check_inputs(subject: Subject, device: TimingDevice) -> None:
    named = (*subject.streamed, *subject.resident)
    further = (operand for one in subject.sets for operand in one)
    inputs = (*named, *further) if named else tuple(captured_operands(subject.run))
    for index, operand in enumerate(inputs):
        if device.is_constant(operand):
            raise MeasurementError(
                MeasurementCause.ZERO_INPUTS,
                f"Every element of input {index} has the same value, and constant data runs faster "
                "than real data (a bf16 product 13 % faster on zeros).",
                "Fill the inputs with random values; name what is only written in outputs=. Where "
                "one is meant to be constant (unit scales), pass TimingOptions(check=False).",
            )


def captured_operands(run: Callable[..., object]) -> Iterator[Any]:
    """What a callable without named operands carries: closure, defaults, partial arguments."""
    if isinstance(run, functools.partial):
        yield from run.args
        yield from run.keywords.values()
        yield from captured_operands(run.func)
        return
    for cell in getattr(run, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    yield from getattr(run, "__defaults__", None) or ()


def _check_does_work(subject: Subject, device: TimingDevice) -> None:
    call = subject.first_call

    def many() -> None:
        for _ in range(NO_WORK_CALLS):
            call()

    spent = device.elapsed_us(many)
    if spent < NO_WORK_CALLS * NO_WORK_US:
        raise MeasurementError(
            MeasurementCause.NO_GPU_WORK,
            f"{NO_WORK_CALLS} calls kept the GPU busy for {spent:.1f} us together: the callable "
            "launches nothing on the GPU's current stream.",
            "Pass a callable that launches its work each time it is called, on the current stream.",
        )


def _check_carve_out(device: TimingDevice) -> None:
    then, now = device.carve_out()
    if now != then:
        raise MeasurementError(
            MeasurementCause.L2_PERSISTING,
            f"The L2 set aside for persisting accesses was changed from {bytes_text(then)} to "
            f"{bytes_text(now)} in this process: what lies there survives rotation and flushes.",
            f"Set cudaLimitPersistingL2CacheSize back to {then} bytes.",
        )


def _check_streams(subject: Subject, device: TimingDevice) -> tuple[str, ...]:
    left = device.leaves_work_on_side_streams(subject.first_call)
    if left:
        raise MeasurementError(
            MeasurementCause.SIDE_STREAM,
            "The callable leaves work on another stream when the current one is done: its time "
            "would not be counted.",
            "Let the current stream wait for the side stream before returning (wait_stream).",
        )
    unseen = "work on side streams could not be looked for: the callable cannot be captured"
    return (unseen,) if left is None else ()


def cold_doubt(streamed_bytes: int, time_us: float, device: TimingDevice) -> str | None:
    """Why a cold time cannot be one: faster than the memory's pins allow; None where it can be.

    Args:
        streamed_bytes: of one launch.
        time_us: of one launch.
        device: for the pins' bandwidth, memory clock x 2 x bus width.
    """
    limit = device.memory_pin_tbs()
    if limit is None or streamed_bytes <= limit * 1e6 * time_us:
        return None
    return (
        f"{bytes_text(streamed_bytes)} in {time_us:.2f} us is "
        f"{streamed_bytes / time_us / 1e6:.2f} TB/s, and the memory's pins carry {limit:.2f} TB/s: "
        "L2 served part of them"
    )


def refuse_if_not_cold(streamed_bytes: int, time_us: float, device: TimingDevice) -> None:
    """Refuse a time as cold where `cold_doubt` has one.

    Raises:
        MeasurementError: `not_cold`.
    """
    doubt = cold_doubt(streamed_bytes, time_us, device)
    if doubt:
        raise MeasurementError(
            MeasurementCause.NOT_COLD,
            f"This is no cold time: {doubt}.",
            "Look for persisting accesses, and for sets that share memory.",
        )
