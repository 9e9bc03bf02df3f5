"""Short questions to other programs: nothing shown, nothing read from the user, never for ever."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


def run_quietly(
    argv: Sequence[str], timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep what it says.

    Args:
        argv: the command.
        timeout_s: seconds until it is killed.
        environment: its whole environment; default: ours.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    return subprocess.run(
        argv,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        check=False,
    )
