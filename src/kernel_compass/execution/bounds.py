"""What a worker's family may take of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MEMORY_SHARE = 0.8
_LEAST_BYTES = 1 << 30


@dataclass(frozen=True)
class Bounds:
    """Limits of one worker and all that its task starts; beyond one of them the task has failed."""

    memory_bytes: int | None = None
    """Resident, of host memory; `None` = its share of what is available at the start."""
    processes: int = 256
    """Alive at once."""
    threads: int = 8192
    """Alive at once, those of all its processes."""
    output_bytes: int = 16 << 20
    """On standard output and standard error together, of one task."""
    start_timeout_s: float = 180.0
    """For the imports that come before the first task."""
    leave_s: float = 0.3
    """Within which threads and processes must have ended once the task has answered."""

    def memory_of_each(self, workers: int) -> int:
        """The limit in bytes of one of so many workers."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return max(int(_available_bytes() * _MEMORY_SHARE / workers), _LEAST_BYTES)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0
