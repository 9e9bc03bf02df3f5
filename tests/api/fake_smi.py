"""An nvidia-smi on PATH that answers what a test wants."""

from __future__ import annotations

import sys

H200 = "GPU 0: NVIDIA H200 (UUID: GPU-aaaa-1)\n"
TWO_KINDS = H200 + "GPU 1: NVIDIA L4 (UUID: GPU-bbbb-2)\n"
MIG = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-cccc-3)
  MIG 3g.40gb     Device  0: (UUID: MIG-1111)
  MIG 1g.10gb     Device  1: (UUID: MIG-2222)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-dddd-4)
"""

SCRIPT = """#!{python}
import sys
if "-L" in sys.argv:
    sys.stdout.write({listing!r})
else:
    for _ in range({count}):
        print({driver!r})
sys.exit({code})
"""


def install(folder, monkeypatch, listing, driver="580.65.06", code=0):
    """Put it on PATH, alone."""
    folder.mkdir(exist_ok=True)
    path = folder / "nvidia-smi"
    count = sum(line.startswith("GPU") for line in listing.splitlines())
    path.write_text(
        SCRIPT.format(python=sys.executable, listing=listing, driver=driver, code=code, count=count)
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
