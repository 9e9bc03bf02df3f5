"""What Triton's compiler makes of `product` from types that are written down here, with the count
of registers that cuobjdump has: in an interpreter of its own, whose kernels are compiled."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import triton

from kernel_compass.api.problem_files import run_file

path, values = Path(sys.argv[1]), json.loads(sys.argv[2])
module, _ = run_file(path)
numbers = {name: values[name] for name in ("BM", "BN", "BK")}
types = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"}
made = triton.compile(
    triton.compiler.ASTSource(
        module.product.fn,
        {**types, **dict.fromkeys(numbers, "constexpr")},
        {(6 + i,): value for i, value in enumerate(numbers.values())},
        {(i,): [["tt.divisibility", 16]] for i in range(6)},
    ),
    target=triton.backends.compiler.GPUTarget("cuda", 90, 32),
    options={name: values[name] for name in ("num_warps", "num_stages")},
)
tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
cubin = path.with_name(f"{made.hash}.cubin")
cubin.write_bytes(made.asm["cubin"])
said = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, check=True)
found = re.search(r"REG:(\d+)", said.stdout)
assert found is not None, said
print(
    json.dumps(
        {
            "registers": int(found[1]),
            "shared_bytes": made.metadata.shared,
            "has_mma": "mma.sync" in made.asm["ptx"],
        }
    )
)
