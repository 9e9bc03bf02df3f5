"""What the kernels in between do to residency: in_situ next to warm and cold.

examples/two_bmms.py launches the 16.8 MB bmm with 0, 20, 60 or 200 MB of other work after each;
`in_situ` must follow the program: resident with little in between, from DRAM with much.

python benchmarks/in_situ_residency.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bmm_limiter import environment

ROOT = Path(__file__).resolve().parent.parent
BETWEEN_MB = (0, 20, 60, 200)


def profile(between: int, regimes: tuple[str, ...], folder: Path) -> dict[str, dict[str, object]]:
    output = folder / f"{between}.json"
    options = [word for regime in regimes for word in ("--regime", regime)]
    subprocess.run(
        [
            sys.executable, "-m", "kernel_compass.cli.main", "profile", *options,
            "--kernels", "nvjet|gemm", "--output", str(output),
            str(ROOT / "examples" / "two_bmms.py"), "--small-only", "--steps", "5",
            "--between", str(between),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    kernel = json.loads(output.read_text())["kernels"][0]
    views = kernel.get("regimes") or {regimes[0]: kernel}
    return {
        regime: {
            "duration_us": view["duration_us"]["median"],
            "dram_mb_read": round(view["metrics"]["dram_bytes_read"] / 1e6, 2),
            "l2_mb_read": round(view["metrics"]["l2_bytes_read"] / 1e6, 2),
            "limiter": view["diagnosis"]["limiter"],
            "flags": view["diagnosis"]["flags"],
            "reuse": view["diagnosis"]["reuse"],
        }
        for regime, view in views.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result: dict[str, dict[str, dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as name:
        for between in BETWEEN_MB:
            regimes = ("warm", "in_situ", "cold") if between == 0 else ("in_situ",)
            result[f"{between} MB between"] = profile(between, regimes, Path(name))
            for regime, row in result[f"{between} MB between"].items():
                print(f"{between:4} MB  {regime:8} {row}", flush=True)
    if args.output:
        document = {"environment": environment(), "bmm": result}
        args.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
