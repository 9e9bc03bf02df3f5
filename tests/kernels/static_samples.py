"""Compiles small kernels and writes what came out: `python static_samples.py FOLDER`.

A program of its own, for a process whose tests use Triton's interpreter cannot compile. Each cubin
becomes a file, and `figures.json` holds what `compile_for` says beside what cuobjdump says.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from kernel_compass.errors import UsageError
from kernel_compass.kernels.static_compile import compile_for

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@triton.jit
def copy(source, target, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def product(a, b, c, n, size: tl.constexpr):
    rows, columns = tl.arange(0, size)[:, None], tl.arange(0, size)[None, :]
    total = tl.zeros((size, size), tl.float32)
    for first in range(0, n, size):
        x = tl.load(a + rows * n + first + columns)
        total = tl.dot(x, tl.load(b + (first + rows) * n + columns), total)
    tl.store(c + rows * size + columns, total)


def tensor(*sizes, dtype=torch.bfloat16, device="meta"):
    return torch.empty(sizes, dtype=dtype, device=device)


def copies(source, n=4096):
    target = tensor(4096, dtype=source.dtype)
    return lambda: copy[(4,)](source, target, n, block=1024)


def products(**options):
    operands = tensor(256, 256), tensor(256, 256), tensor(64, 64, dtype=torch.float32)
    return lambda: product[(1,)](*operands, 256, size=64, **options)


def both():
    copies(tensor(4096))()
    products()()
    copies(tensor(4096))()


LAUNCHES = {
    "copy": (copies(tensor(4096)), (9, 0)),
    "copy, askew": (copies(tensor(4097, device="cpu")[1:]), (9, 0)),
    "copy, odd": (copies(tensor(4096), 4095), (9, 0)),
    "copy by warmup": (
        lambda: copy.warmup(tensor(9), tensor(9), 4096, block=1024, grid=(1,)),
        (9, 0),
    ),
    "two": (both, (9, 0)),
    "product, eight warps": (products(num_warps=8), (9, 0)),
    "product, few registers": (products(maxnreg=40), (8, 0)),
    "product 8.0": (products(), (8, 0)),
    "product 9.0": (products(), (9, 0)),
    "product 10.0": (products(), (10, 0)),
}


def main(folder: Path) -> None:
    figures, cubins = {}, []
    compile_one = triton.compiler.compile
    run, before = JITFunction.run, driver._active
    for name, (launch, capability) in LAUNCHES.items():
        figures[name] = [
            {**asdict(found), "spills": found.spills} for found in compile_for(launch, capability)
        ]
    assert JITFunction.run is run and driver._active is before
    assert triton.compiler.compile is compile_one
    for function in (copy, product):
        for device, (kernels, *_) in function.device_caches.items():
            cubins += [(str(device), kernel) for kernel in kernels.values()]
    said = []
    for index, (_, kernel) in enumerate(cubins):
        file = folder / f"{index}.cubin"
        file.write_bytes(kernel.asm["cubin"])
        usage = subprocess.run(
            [CUOBJDUMP, "-res-usage", file], capture_output=True, text=True, check=True
        )
        said.append({"name": kernel.metadata.name, "file": file.name, "usage": usage.stdout})
    refused = []
    for launch in (lambda: None, failing):
        try:
            compile_for(launch, (9, 0))
        except (UsageError, ZeroDivisionError) as error:
            refused.append(str(error))
    assert JITFunction.run is run and driver._active is before
    result = {"figures": figures, "cubins": said, "refused": refused}
    (folder / "figures.json").write_text(json.dumps(result))


def failing() -> None:
    raise ZeroDivisionError("in a launcher")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
