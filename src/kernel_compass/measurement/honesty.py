"""What must hold before a time means anything. In-process: stops accidents, not hostile code."""

from __future__ import annotations

from kernel_compass.errors import MeasurementCause, MeasurementError
from kernel_compass.measurement.carried import carried_objects
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
    unseen = _check_inputs(subject, device)
    device.run(subject.first_call)
    _check_does_work(subject, device)
    _check_carve_out(device)
    return (*unseen, *_check_streams(subject, device))


def _check_inputs(subject: Subject, device: TimingDevice) -> tuple[str, ...]:
    """Refuse constant inputs; what a callable carries is refused where most of it is constant.

    A module's unit scales and zero biases are constant by design, and small beside its weights.
    """
    named = (*subject.streamed, *subject.resident, *(o for one in subject.sets for o in one))
    for index, operand in enumerate(named):
        if device.is_constant(operand):
            raise _constant(f"Every element of input {index} has the same value")
    if named:
        return ()
    objects = carried_objects(subject.run, without=device)
    carried = [o for o in objects if device.bytes_of(o) > 0]
    whole = sum(map(device.bytes_of, carried))
    constant = sum(device.bytes_of(o) for o in carried if device.is_constant(o))
    if constant > whole / 2:
        raise _constant("Most of what the callable carries holds one value in every element")
    return () if carried else ("inputs could not be looked at: name them in Subject(streamed=...)",)


def _constant(found: str) -> MeasurementError:
    return MeasurementError(
        MeasurementCause.ZERO_INPUTS,
        f"{found}, and constant data runs faster than real data (a bf16 product 13 % faster on "
        "zeros).",
        "Fill the inputs with random values; name what is only written in outputs=. Where one is "
        "meant to be constant (unit scales), pass TimingOptions(check=False).",
    )


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
