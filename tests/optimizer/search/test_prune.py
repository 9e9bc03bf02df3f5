"""What a static compilation rules out, against the limits of the programming guide."""

from __future__ import annotations

import pytest

from kernel_compass.optimizer.search.prune import (
    LIMITS,
    Compiled,
    Dropped,
    Limits,
    features,
    prune,
    warps_resident,
)


def made(registers=64, threads=128, shared=8192, loop_spills=0):
    return Compiled(
        {
            "registers": registers,
            "threads": threads,
            "shared_bytes": shared,
            "loop_spills": loop_spills,
        }
    )


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "warps"),
    [
        (32, 256, 0, 64),  # 8 programs of 8 warps: full
        (64, 128, 0, 32),  # registers: 65536 / (64 * 128) = 8 programs of 4 warps
        (72, 128, 0, 28),  # 72 * 128 = 9216, of which 7 fit
        (255, 256, 0, 8),  # allotted as 256: one program
        (32, 128, 56_000, 16),  # four times 56,000 and 1,024 in 233,472
        (16, 32, 0, 32),  # 32 programs are the most
        (255, 1024, 0, 0),  # not one fits
    ],
)
def test_occupancy(registers, threads, shared, warps):
    figures = {"registers": registers, "threads": threads, "shared_bytes": shared}
    assert warps_resident(figures, Limits()) == warps


@pytest.mark.parametrize(
    ("compiled", "reason"),
    [
        (made(), None),
        (made(shared=232_448), None),
        (made(shared=232_449), Dropped.SHARED_MEMORY),
        (made(registers=128, threads=1024), Dropped.REGISTERS),
        (made(registers=32, threads=2048), Dropped.THREADS),
        (made(loop_spills=40), Dropped.SPILLS),
        (made(loop_spills=2), None),
        (made(registers=255, threads=32, shared=200_000), Dropped.OCCUPANCY),
        (Compiled(None, "CompilationError: no"), Dropped.DOES_NOT_COMPILE),
    ],
)
def test_reasons(compiled, reason):
    verdicts = prune([made(), compiled], ["mma", "mma"], Limits())
    assert verdicts[0].dropped is None
    assert verdicts[1].dropped is reason
    assert bool(verdicts[1].detail) == (reason is not None)


def test_of_a_kind_that_all_spills_the_least_is_kept():
    found = prune([made(), made(loop_spills=90), made(loop_spills=50)], ["a", "b", "b"], Limits())
    assert [v.dropped for v in found] == [None, Dropped.SPILLS, None]


def test_what_cannot_launch_is_never_kept():
    found = prune([made(shared=300_000), Compiled(None, "x")], ["a", "b"], Limits())
    assert [v.dropped for v in found] == [Dropped.SHARED_MEMORY, Dropped.DOES_NOT_COMPILE]


def test_kinds_are_compared_among_themselves():
    """A kernel of few wide programs is not dropped because another kind has many."""
    few = made(registers=255, threads=32, shared=200_000)
    assert prune([made(), few], ["a", "b"], Limits())[1].dropped is None


def test_an_older_architecture_has_less_shared_memory():
    assert prune([made(shared=120_000)], ["a"], LIMITS[8, 6])[0].dropped is Dropped.SHARED_MEMORY


def test_features():
    assert features(Compiled(None, "x"), Limits()) is None
    assert features(made(registers=32, threads=256, shared=0), Limits())["occupancy_pct"] == 100.0
