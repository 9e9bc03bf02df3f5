"""What every strategy must do: `CHECKS`, each with a `make(inputs, seed)`.

Bounds are wide: they find what hangs or asks twice, not what is a little slow.
"""

from __future__ import annotations

import time
from math import log

from kernel_compass.errors import UsageError
from kernel_compass.optimizer.search.space_inputs import SpaceInputs


def space(count, estimates=True, names=("a", "b", "c", "d")):
    """Configurations of numbers, words and flags; times that follow from them."""
    configs, times = [], []
    for i in range(count):
        config = {
            "kernel": ("mma", "wgmma", "plain")[i % 3],
            "tile": 16 << (i // 3) % 4,
            "warps": 1 << (i // 12) % 4,
            "hold": bool((i // 48) % 2),
            "rest": i // 96,
        }
        configs.append(config)
        times.append(_time(config))
    guesses = [t * (1.3 if c["hold"] else 0.9) for c, t in zip(configs, times, strict=True)]
    return SpaceInputs(configs, guesses if estimates else [None] * count), times


def _time(c):
    kernel = {"mma": 1.0, "wgmma": 1.4, "plain": 2.0}[c["kernel"]]
    return (
        3 * kernel * (1 + abs(log(c["tile"] / 64)) + 0.3 * abs(log(c["warps"] / 4)))
        + c["rest"] / 50
    )


def drive(strategy, times, most=None, batch=1, fails=lambda i: False):
    """Ask and tell until nothing is left, or so many were asked."""
    asked = []
    while most is None or len(asked) < most:
        got = list(strategy.ask(batch))
        if not got:
            break
        assert len(got) <= batch, f"{len(got)} points for a question of {batch}"
        asked += got
        assert len(asked) <= len(times), "more questions than points: it asks twice"
        for i in got:
            strategy.tell(i, None if fails(i) else times[i])
    return asked


def check_asks_everything_once(make):
    for count, batch in ((1, 1), (7, 3), (40, 1), (100, 16)):
        inputs, times = space(count)
        asked = drive(make(inputs, 0), times, batch=batch)
        assert sorted(asked) == list(range(count)), f"{len(asked)} of {count}, some twice or never"


def check_is_deterministic(make):
    inputs, times = space(90)
    first, second = (drive(make(inputs, 5), times, 25) for _ in range(2))
    assert first == second, "two of the same seed ask differently"


def check_resumes(make):
    """Told again what was told before, without asking, it goes on as if nothing had been."""
    inputs, times = space(90)
    whole = drive(make(inputs, 3), times, 24, fails=lambda i: i % 11 == 5)
    again = make(inputs, 3)
    for i in whole[:13]:
        again.tell(i, None if i % 11 == 5 else times[i])
    rest = drive(again, times, 11, fails=lambda i: i % 11 == 5)
    assert rest == whole[13:], "a resumed one asks something else"


def check_bears_failures(make):
    inputs, times = space(70)
    asked = drive(make(inputs, 1), times, fails=lambda i: i % 2 == 0)
    assert sorted(asked) == list(range(70))
    asked = drive(make(inputs, 1), times, fails=lambda i: True)
    assert sorted(asked) == list(range(70)), "all fail, and it stops or repeats"


def check_pending(make):
    """Points that nobody told of yet are not asked again, and told out of order."""
    inputs, times = space(40)
    strategy = make(inputs, 2)
    waiting = [i for _ in range(6) for i in strategy.ask(3)]
    assert len(set(waiting)) == 18
    for i in reversed(waiting):
        strategy.tell(i, times[i])
    rest = drive(strategy, times, batch=5)
    assert sorted(waiting + rest) == list(range(40))


def check_equal_configurations(make):
    inputs, times = space(12)
    twice = SpaceInputs([*inputs.configs, *inputs.configs], [*inputs.estimates_us] * 2)
    asked = drive(make(twice, 0), times * 2)
    assert sorted(asked) == list(range(12)), "an equal configuration is measured again"


def check_ties(make):
    inputs, _ = space(30)
    flat = SpaceInputs(inputs.configs, [2.0] * 30)
    assert sorted(drive(make(flat, 4), [2.0] * 30)) == list(range(30))


def check_nothing_known(make):
    inputs, times = space(30, estimates=False)
    assert sorted(drive(make(inputs, 4), times)) == list(range(30))
    some = SpaceInputs(inputs.configs, [None if i % 3 else 4.0 for i in range(30)])
    assert sorted(drive(make(some, 4), times)) == list(range(30))
    bare = SpaceInputs([{}], ())
    assert list(make(bare, 0).ask(4)) == [0]


def check_retold(make):
    """A finalist is measured again: the newer time counts, and nothing is asked twice for it."""
    inputs, times = space(20)
    strategy = make(inputs, 0)
    (first,) = strategy.ask(1)
    for t in (9.0, 5.0, None, 4.0):
        strategy.tell(first, t)
    assert first not in drive(strategy, times)


def check_refuses(make):
    inputs, _ = space(5)
    for index, value in ((5, 1.0), (-1, 1.0), (0, float("nan")), (0, 0.0), (0, float("inf"))):
        strategy = make(inputs, 0)
        try:
            strategy.tell(index, value)
        except UsageError:
            continue
        raise AssertionError(f"telling {value} of point {index} was taken")
    assert list(make(inputs, 0).ask(0)) == []


def check_wild_times(make):
    """Times over many orders of magnitude, and equal ones, are no reason to stop."""
    inputs, _ = space(40)
    times = [10.0 ** (i % 13 - 4) for i in range(40)]
    assert sorted(drive(make(inputs, 0), times)) == list(range(40))


def check_large_space(make, most_ms=400.0):
    """20,000 points: a question takes no time worth naming."""
    inputs, times = space(20_000)
    strategy = make(inputs, 0)
    begin = time.perf_counter()
    asked = drive(strategy, times, 8)
    each = (time.perf_counter() - begin) * 1e3 / len(asked)
    assert len(set(asked)) == 8
    assert each < most_ms, f"{each:.0f} ms a question"
    assert len(set(strategy.ask(50))) == 50


CHECKS = (
    check_asks_everything_once,
    check_is_deterministic,
    check_resumes,
    check_bears_failures,
    check_pending,
    check_equal_configurations,
    check_ties,
    check_nothing_known,
    check_retold,
    check_refuses,
    check_wild_times,
    check_large_space,
)
