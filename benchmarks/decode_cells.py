"""Launch the shipped configuration of the decode product, and cuBLAS, on some cells, for ncu.

    kernel-compass profile --regime warm --regime cold --kernels 'decode_|nvjet|gemm' \\
        --json --output FILE benchmarks/decode_cells.py -- bmm:128x64x512x128:w8a16_fp8 ...

A cell is `bmm:HxMxKxN:FORMAT` or `linear:MxNxK:FORMAT`.
"""

from __future__ import annotations

import sys

import torch

from kernel_compass.kernels.providers import registry
from kernel_compass.kernels.quantize import quantize
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload


def cell(text: str) -> tuple[Workload, NumberFormat]:
    op, sizes, name = text.split(":")
    numbers = [int(size) for size in sizes.split("x")]
    if op == "bmm":
        heads, tokens, reduction, columns = numbers
    else:
        (tokens, columns, reduction), heads = numbers, 1
    return Workload(Op(op), heads, tokens, reduction, columns), NumberFormat.parse(name)


def main() -> None:
    torch.manual_seed(0)
    for text in sys.argv[1:]:
        workload, number_format = cell(text)
        w = workload
        weight = torch.randn(w.heads, w.reduction, w.columns, device="cuda") * w.reduction**-0.5
        shape = (w.tokens, w.reduction) if w.op is Op.LINEAR else (w.heads, w.tokens, w.reduction)
        a = torch.randn(shape, device="cuda").to(torch.bfloat16)
        runs = (("own_decode", number_format), ("cublas_bf16", NumberFormat.parse("bf16")))
        for name, held in runs:
            one = registry.implementation(name)
            prepared = one.prepare(quantize(weight, held), w, None)
            with torch.cuda.nvtx.range(f"{text} {name}"):
                one.run(prepared, prepared.streamed, a)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
