"""`kill -9` at any instant loses nothing but the trials in flight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
KILLS = 50


def test_killed_at_random_instants_and_resumed_it_comes_to_the_same_verdict(tmp_path):
    path = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
    found = subprocess.run(
        [sys.executable, str(HERE / "loop_killer.py"), str(tmp_path), str(KILLS), "0"],
        env={**os.environ, "PYTHONPATH": path, "KERNEL_COMPASS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = json.loads(found.stdout)
    whole, rows = said["whole"], said["rows"]
    assert whole["accepted"]  # there is something that could be lost
    assert len(rows) == KILLS
    begun = [row["before"] for row in rows if row["before"] is not None]
    assert len({one["trials"] for one in begun}) >= 10  # all over the run
    assert any(row["after"]["interrupted"] for row in rows)  # in the middle of trials too
    for row in rows:
        before, after = row["before"], row["after"]
        assert after["sha256"] == whole["sha256"]
        assert len(set(after["accepted"])) == len(after["accepted"])
        if before is not None:
            assert set(before["accepted"]) <= set(after["accepted"])
