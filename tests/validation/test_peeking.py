"""Whose looks at frames count: a candidate's, not those of what is installed, wherever that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
LOOKS = "import sys\n\n\ndef caller():\n    return sys._getframe(1)\n"
PROGRAM = """
from kernel_compass.validation.peeking import Audit, listening
import looking

audit = Audit()
with listening(audit):
    looking.caller()
print(audit.looks)
"""


@pytest.mark.parametrize("installed", [True, False])
def test_an_installed_package_may_look_where_a_candidate_may_not(tmp_path, installed):
    (tmp_path / "looking.py").write_text(LOOKS)
    if installed:
        record = tmp_path / "looking-1.0.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text("looking.py,,\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(SRC)))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ("[]" if installed else "['sys._getframe']")
