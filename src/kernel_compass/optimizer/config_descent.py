"""Which configurations of a kernel to time, where all of them are too many.

First a few that lie on the diagonal: every size larger or smaller by the same factor, because a
poor choice is mostly poor in all of them at once. Then, from the best so far, all that differ from
it in one parameter, until none is better; what is left of the number goes to those that differ in
two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kernel_compass.records.contracts import Config
from kernel_compass.records.step_capture import LAUNCH_OPTIONS
from kernel_compass.records.step_loop import ConfigTime

USUAL_WARPS = (4, 8, 16)
Times = Callable[[tuple[int, ...]], Sequence[ConfigTime]]


def descended(space: Sequence[Config], most: int, times: Times) -> dict[int, ConfigTime]:
    """The times of at most `most` configurations, by their place in the space.

    Args:
        space: configurations, the nearest to the present one first.
        most: how many are timed.
        times: of those at some places of the space, each in its order.
    """
    found: dict[int, ConfigTime] = {}

    def take(wanted: Iterator[int]) -> bool:
        """Time those that were not; whether there were any."""
        fresh = tuple(i for i in dict.fromkeys(wanted) if i not in found)[: most - len(found)]
        if fresh:
            found.update(zip(fresh, times(fresh), strict=True))
        return bool(fresh)

    if len(space) <= most:
        take(iter(range(len(space))))
        return found
    take(_diagonal(space))
    take(iter(range(most // 8)))
    while (best := _best(found)) is not None:
        more = take(_differing(space, best, 1)) or take(_differing(space, best, 2))
        if not more:
            break
    take(iter(range(len(space))))
    return found


def _best(found: dict[int, ConfigTime]) -> int | None:
    timed = [(one.time_us, i) for i, one in found.items() if one.time_us is not None]
    return min(timed)[1] if timed else None


def _diagonal(space: Sequence[Config]) -> Iterator[int]:
    """Those whose sizes stand at the same place among the values that each of them takes."""
    names = [name for name in space[0] if name not in LAUNCH_OPTIONS]
    values = {name: sorted({one[name] for one in space}, key=_key) for name in names}
    sizes = [name for name in names if len(values[name]) > 1]
    stages = [one["num_stages"] for one in space if "num_stages" in one]
    usual = 3 if 3 in stages else None
    for i, one in enumerate(space):
        places = {values[name].index(one[name]) - len(values[name]) for name in sizes}
        fits = one.get("num_warps") in USUAL_WARPS and one.get("num_stages", usual) == usual
        if len(places) <= 1 and fits:
            yield i


def _key(value: int | float | str | bool) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)


def _differing(space: Sequence[Config], best: int, count: int) -> Iterator[int]:
    """Those that differ from the best in so many parameters, the nearest first."""
    mine = space[best]
    near = []
    for i, one in enumerate(space):
        names = [name for name in one if one[name] != mine.get(name)]
        if len(names) == count:
            near.append((sum(_far(one[name], mine.get(name)) for name in names), i))
    yield from (i for _, i in sorted(near))


def _far(one: object, other: object) -> float:
    numbers = [float(x) for x in (one, other) if isinstance(x, int | float) and x > 0]
    return max(numbers) / min(numbers) if len(numbers) == 2 else 2.0
