"""Kills a run of the loop at random instants, resumes it, and prints what came of each as JSON.

A program of its own: it forks, which a test's process with its threads should not.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from itertools import count
from pathlib import Path

from loop_samples import TARGET, recording

from kernel_compass import api
from kernel_compass.codec import loop_recording
from kernel_compass.codec.study_document import canonical
from kernel_compass.errors import StudyError
from kernel_compass.optimizer.ledger import read_study

TRIALS = 30


def begin(device: str, folder: Path) -> None:
    request = api.study_request(TARGET, trials=TRIALS)
    api.optimize(request, device, identifier=folder.name, folder=folder)


def go_on(folder: Path) -> None:
    api.resume_study(f"{folder}{os.sep}")


def forked(call, *given) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        call(*given)
        code = 0
    finally:
        os._exit(code)


def seen(folder: Path) -> dict[str, object] | None:
    """What the ledger of a run that may have been killed says; `None` = there is none yet."""
    try:
        found = read_study(folder)
    except StudyError:
        return None
    return {
        "accepted": [entry.reference for entry in found.entries],
        "trials": len(found.trials),
        "interrupted": len(found.interruptions),
        "sha256": hashlib.sha256(canonical(found)).hexdigest(),
    }


def main() -> None:
    place, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    path = place / "recording.json.gz"
    path.write_bytes(loop_recording.encode(recording()))
    device = f"recorded:{path}"
    begin(device, place / "first")  # imports everything, for all forks
    start = time.monotonic()
    os.waitpid(forked(begin, device, place / "whole"), 0)
    whole_s = time.monotonic() - start
    draw, rows = random.Random(seed), []
    for number in count():
        if len(rows) == kills:
            break
        folder = place / f"study-{number}"
        child = forked(begin, device, folder)
        time.sleep(draw.uniform(0, whole_s))
        os.kill(child, signal.SIGKILL)
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            continue  # it had ended by itself
        before = seen(folder)
        if before is None:  # killed before there was a ledger: nothing to go on with
            os.waitpid(forked(begin, device, folder), 0)
        else:
            os.waitpid(forked(go_on, folder), 0)
        rows.append({"before": before, "after": seen(folder)})
    print(json.dumps({"whole": seen(place / "whole"), "whole_s": whole_s, "rows": rows}))


if __name__ == "__main__":
    main()
