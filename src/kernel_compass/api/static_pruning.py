"""What a space compiles to, without a GPU: in several processes, remembered on disk.

A configuration is known by the kernels' sources, the Triton that compiles them, the architecture
and the sizes. What cannot be compiled is remembered too; what crashed or hung is tried again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from kernel_compass.api.compile_pool import CompilePool
from kernel_compass.errors import UsageError
from kernel_compass.kernels.static_compile import triton_version
from kernel_compass.kernels.static_point import compile_point
from kernel_compass.optimizer.search.prune import LIMITS, Compiled, Limits, of_kernels
from kernel_compass.records.contracts import Config
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


class Compilable(Protocol):
    """What is compiled: something that configurations are of. It can be pickled."""

    @property
    def capability(self) -> tuple[int, int]:
        """Of the architecture."""

    def known_by(self, config: Config) -> list[Any]:
        """What decides what becomes of a configuration, beside architecture and Triton: JSON."""

    def figures(self, config: Config) -> tuple[dict[str, float], ...]:
        """`figures_of` each kernel that the configuration launches."""

    def is_lasting(self, compiled: Compiled) -> bool:
        """Whether what became of a configuration would become of it again."""


@dataclass(frozen=True)
class StaticRequest:
    """An implementation of our own, at a product."""

    implementation: str
    workload: Workload
    format: NumberFormat
    capability: tuple[int, int]

    def known_by(self, config: Config) -> list[Any]:
        """See `Compilable`."""
        w = self.workload
        sizes = [w.op.value, w.heads, w.tokens, w.reduction, w.columns]
        return [_sources(), self.implementation, self.format.name, sizes, dict(config)]

    def figures(self, config: Config) -> tuple[dict[str, float], ...]:
        """See `Compilable`."""
        return compile_point(
            self.implementation, self.workload, self.format, config, self.capability
        )

    def is_lasting(self, compiled: Compiled) -> bool:
        """See `Compilable`."""
        return not compiled.lost


Point = tuple[Compilable, Config]


def limits_of(capability: tuple[int, int]) -> Limits:
    """Of the architecture.

    Raises:
        UsageError: it is not known.
    """
    if capability not in LIMITS:
        known = ", ".join("{}.{}".format(*c) for c in LIMITS)
        raise UsageError(
            "The limits of compute capability {}.{} are not known.".format(*capability),
            f"Known are {known}.",
        )
    return LIMITS[capability]


def compile_space(
    request: Compilable,
    configs: Sequence[Config],
    *,
    processes: int | None = None,
    timeout_s: float = 300.0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Compiled, ...]:
    """Each configuration of one launch compiled, or why it is not; see `compile_points`."""
    points = [(request, config) for config in configs]
    return compile_points(
        points, processes=processes, timeout_s=timeout_s, folder=folder, progress=progress
    )


def compile_points(
    points: Sequence[Point],
    *,
    processes: int | None = None,
    timeout_s: float = 300.0,
    budget_s: float | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Compiled, ...]:
    """Configurations of several launches compiled, or why they are not, by index.

    Args:
        points: begun in this order.
        processes: at a time; `None` = as many as cores.
        timeout_s: of one compilation.
        budget_s: of all together; those that have no answer by then are `lost`.
        folder: where figures are remembered; `None` = in the user's cache.
        progress: told after each.

    Raises:
        MissingDependency: triton is not installed.
    """
    version = triton_version()
    where = folder or default_folder()
    files = [where / _key(request, config, version) for request, config in points]
    found: list[Compiled | None] = [_remembered(file) for file in files]
    left = [i for i, known in enumerate(found) if known is None]
    done = len(points) - len(left)
    if progress:
        progress(done, len(points))
    count = min(processes or os.cpu_count() or 1, max(len(left), 1))
    pool = CompilePool(figures_in_one, count, timeout_s, budget_s)
    for answer in pool.run([points[i] for i in left]):
        index = left[answer.index]
        found[index] = compiled = Compiled(answer.value, answer.failure, answer.lost)
        if points[index][0].is_lasting(compiled):
            _remember(files[index], compiled)
        done += 1
        if progress:
            progress(done, len(points))
    return tuple(each for each in found if each is not None)


def figures_in_one(request: Compilable, config: Config) -> dict[str, float]:
    """Of a configuration's kernels together: in a compiler's process."""
    limits = LIMITS.get(request.capability, Limits())
    return of_kernels(request.figures(config), limits)


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/kernel-compass/static`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kernel-compass" / "static"


def _key(request: Compilable, config: Config, version: str) -> str:
    """The name of a configuration's file."""
    parts = [version, request.capability, *request.known_by(config)]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40] + ".json"


@cache
def _sources() -> str:
    """Of all kernels: a configuration may use any of their helpers."""
    folder = Path(__file__).parents[1] / "kernels"
    files = sorted(folder.rglob("*.py"))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _remembered(file: Path) -> Compiled | None:
    """What was found before; a file that cannot be read is as good as none."""
    try:
        found = json.loads(file.read_text())
        figures = found["figures"]
        whole = figures is None or all(isinstance(v, float | int) for v in figures.values())
        return Compiled(figures, found["failure"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remember(file: Path, compiled: Compiled) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(json.dumps(asdict(compiled)))
    beside.replace(file)
