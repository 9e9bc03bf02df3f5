"""Time and memory of reading a large trace: `python benchmarks/read_timeline.py`.

Writes a trace as torch.profiler formats it (one field a line; operators with shapes, runtime
calls, kernels, flow arrows) to a temporary folder, with Python frames beside them or without,
diagnoses it in a child process, prints seconds and peak RSS as JSON, and exits 1 when either is
over its limit or an event was lost.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from reading_cost import Launched, cost_of, tell_cost

KERNELS = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, "
    "c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, "
    "std::array<char*, 3ul> >(int, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul>)",
    "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const>(int)",
)
FRAMES_A_LAUNCH = 10


def launch(at: int, frames: int) -> Iterator[dict]:
    """The events of one operator with one kernel; a launch every 20 us."""
    ts = 5_296_140_788_704.453 + 20.0 * at
    cpu = {"pid": 4321, "tid": 4321}
    shapes = {
        "Concrete Inputs": ["", ""],
        "Input type": ["c10::BFloat16", "c10::BFloat16"],
        "Input Strides": [[4096, 1], [1, 4096]],
        "Input Dims": [[16, 4096], [4096, 14336 if at % 2 else 4096]],
    }
    ids = {"External id": at + 1, "Record function id": 0}
    for depth in range(frames):
        yield {
            "ph": "X", "cat": "python_function", "name": f"model/layers.py({depth * 7}): forward",
            **cpu, "ts": round(ts + 0.1 * depth, 3), "dur": round(15 - 0.2 * depth, 3),
            "args": {"Python parent id": depth, "Python id": at * frames + depth, "Ev Idx": at},
        }  # fmt: skip
    yield {
        "ph": "X", "cat": "cpu_op", "name": "aten::mm", **cpu, "ts": round(ts + 2, 3), "dur": 9.5,
        "args": ids | shapes | {"Ev Idx": at},
    }  # fmt: skip
    yield {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **cpu,
        "ts": round(ts + 5, 3), "dur": 4.125,
        "args": {"External id": at + 1, "cbid": 211, "correlation": at + 1},
    }  # fmt: skip
    flow = {"id": at + 1, "cat": "ac2g", "name": "ac2g"}
    yield {"ph": "s", **flow, **cpu, "ts": round(ts + 5, 3)}
    yield {
        "ph": "X", "cat": "kernel", "name": KERNELS[at % len(KERNELS)], "pid": 0, "tid": 7,
        "ts": round(ts + 11, 3), "dur": 6.25,
        "args": {
            "External id": at + 1, "queued": 0, "device": 0, "context": 1, "stream": 7,
            "correlation": at + 1, "registers per thread": 32, "shared memory": 0,
            "blocks per SM": 6.787879, "warps per SM": 27.151516, "grid": [896, 1, 1],
            "block": [128, 1, 1], "est. achieved occupancy %": 42,
        },
    }  # fmt: skip
    yield {"ph": "f", **flow, "pid": 0, "tid": 7, "ts": round(ts + 11, 3), "bp": "e"}


def write(path: Path, megabytes: float, frames: int) -> int:
    """Write a trace of about that size before compression; returns its number of kernels."""
    count, size = 0, 0
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        file.write('{\n  "schemaVersion": 1,\n  "deviceProperties": [],\n  "traceEvents": [\n')
        while size < megabytes * 1e6:
            text = ",\n".join(json.dumps(event, indent=2) for event in launch(count, frames))
            file.write((",\n" if count else "") + text)
            size += len(text)
            count += 1
        file.write('\n  ],\n  "traceName": "t.json"\n}\n')
    return count


def kernels(path: str) -> Iterable[Launched]:
    """Diagnose one trace."""
    from kernel_compass.api import diagnose_timeline

    (report,) = diagnose_timeline(Path(path))
    return (item.kernel for item in report.kernels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--no-frames", action="store_true", help="no Python frames: more kernels")
    parser.add_argument("--gzip", action="store_true")
    parser.add_argument("--limit-s", type=float, default=20.0)
    parser.add_argument("--limit-mib", type=float, default=400.0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tell_cost(lambda: kernels(options.child))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("trace.json.gz" if options.gzip else "trace.json")
        launches = write(path, options.megabytes, 0 if options.no_frames else FRAMES_A_LAUNCH)
        figures = {"megabytes": options.megabytes, **cost_of(__file__, str(path))}
    print(json.dumps(figures))
    fast = figures["seconds"] <= options.limit_s and figures["peak_rss_mib"] <= options.limit_mib
    return 0 if fast and figures["launches"] == launches else 1


if __name__ == "__main__":
    sys.exit(main())
