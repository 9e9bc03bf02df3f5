"""Times of bmm over weight size and tokens, three precisions, warm and cold: the model's grid.

    python benchmarks/h200_grid.py --output FILE.json

H = K = 128, N = 256 ... 4096, M = 1 ... 256. Every kernel is checked against float64 first.
`benchmarks/h200_accuracy.py` fits the model to six of the cells of each kernel and predicts the
rest.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from bmm_kernels import relative_error, subject

from kernel_compass.measurement.timing import TimingOptions, measure
from kernel_compass.measurement.torch_device import TorchDevice
from kernel_compass.records.profile import Regime

COLUMNS = (256, 512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096)
TOKENS = (1, 4, 16, 32, 64, 128, 256)
PRECISIONS = ("bf16", "w8a16", "w4a16")
ERROR_LIMIT = 5e-3
OPTIONS = TimingOptions(samples=15, rotation_bytes=1 << 29, settle_us=3_000.0, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    device = TorchDevice()
    rows = []
    for precision in PRECISIONS:
        for n in COLUMNS:
            for m in TOKENS:
                s = subject(precision, 128, m, 128, n)
                error = relative_error(s)
                if not error < ERROR_LIMIT:
                    raise SystemExit(f"{precision} N={n} M={m}: relative error {error}")
                row = {"precision": precision, "heads": 128, "tokens": m, "k": 128, "n": n}
                for regime in (Regime.WARM, Regime.COLD):
                    found = measure(s, device, regime, options=OPTIONS)
                    row[f"{regime.value}_us"] = found.median_us
                    row[f"{regime.value}_spread_pct"] = found.spread_pct
                rows.append(row | {"relative_error": error})
            print(
                f"{precision} N={n}: "
                + " ".join(f"{r['warm_us']:.2f}/{r['cold_us']:.2f}" for r in rows[-len(TOKENS) :]),
                flush=True,
            )
    environment = asdict(device.environment())
    text = json.dumps({"environment": environment, "rows": rows}, indent=1)
    args.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
