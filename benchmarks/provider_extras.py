"""Would an extra change what a serving image already has? Asks pip; installs nothing.

    python benchmarks/provider_extras.py [--extra providers] [--python /path/to/python]

Exit code 1 where pip would install, upgrade or downgrade torch, triton or numpy in that Python.
Needs the package index; so it is run by hand, before the extra's versions are changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

KEPT = ("torch", "triton", "numpy")
ROOT = Path(__file__).parents[1]


def requirements(extra: str) -> list[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[str] = document["project"]["optional-dependencies"][extra]
    return found


def would_install(python: str, wanted: list[str]) -> dict[str, str]:
    """Versions by name of what pip would install."""
    command = [python, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: pip cannot resolve it:\n{done.stderr.strip()[-2000:]}")
    report = json.loads(done.stdout)
    return {one["metadata"]["name"]: one["metadata"]["version"] for one in report["install"]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extra", default="providers")
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    found = would_install(asked.python, requirements(asked.extra))
    for name, version in sorted(found.items()):
        print(f"{'CHANGES' if name in KEPT else 'adds':8} {name} {version}")
    changed = [name for name in KEPT if name in found]
    print(f"changes {', '.join(changed)}" if changed else f"keeps {', '.join(KEPT)}")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
