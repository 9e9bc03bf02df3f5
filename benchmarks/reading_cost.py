"""What reading one large file costs, in a process of its own; shared by the reading benchmarks."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Launched(Protocol):
    """A kernel with its launches."""

    launches: int


def tell_cost(read: Callable[[], Iterable[Launched]]) -> None:
    """Read, and print launches, kernels and the cost of the whole process as JSON."""
    start = time.perf_counter()
    kernels = list(read())
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "launches": sum(kernel.launches for kernel in kernels),
        "kernels": len(kernels),
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_rss_mib": round(used.ru_maxrss / 1024, 1),
    }
    print(json.dumps(figures))


def cost_of(script: str, path: str) -> dict[str, Any]:
    """What `script --child path` tells."""
    command = [sys.executable, script, "--child", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
