"""Own kernels on CPU tensors without Triton's interpreter: told what is needed, by every door."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_compass

pytest.importorskip("torch", reason="kernels take tensors: torch is not installed")
pytest.importorskip("triton", reason="the kernels are Triton's: triton is not installed")

SCRIPT = """
import json, os
import torch
from kernel_compass.errors import UsageError
from kernel_compass.kernels import static_compile
from kernel_compass.kernels.plain_layouts import pack_plain
from kernel_compass.kernels.providers.own import PROVIDER
from kernel_compass.kernels.quantize import quantize
from kernel_compass.kernels.q_absorb_rope import q_absorb_rope
from kernel_compass.kernels.v_up_group_quant import v_up_group_quant
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.records.workload import Op, Workload

def weight(name):
    return quantize(torch.randn(2, 128, 128), NumberFormat.parse(name))

workload, said = Workload(Op.BMM, 2, 3, 128, 128), {}
rows = torch.randn(2, 3, 128).bfloat16()

def told(name, launch):
    try:
        launch()
        said[name] = None
    except UsageError as error:
        said[name] = str(error)

def products():
    for one in PROVIDER.implementations():
        for name in ("bf16", *EXAMPLES[2:]):
            gpu = one.supports(workload, NumberFormat.parse(name), Target("cuda", (9, 0)))
            if gpu is None:
                prepared = one.prepare(weight(name), workload)
                yield f"{one.name} {name}", lambda: one.run(prepared, prepared.streamed, rows)

for name, launch in products():
    told(name, launch)
    said[name + " compiled"] = bool(static_compile.compile_for(launch, (9, 0), listing=False))
    told(name, launch)
plain, x = pack_plain(weight("bf16")), rows.transpose(0, 1)
angles, places = torch.zeros(4, 8), torch.zeros(3, dtype=torch.int64)
told("q_absorb_rope", lambda: q_absorb_rope(x, x[..., :8], plain, angles, places))
told("v_up_group_quant", lambda: v_up_group_quant(x, plain))
os.environ["TRITON_INTERPRET"] = "1"  # too late: the kernels are compiled
told("v_up_group_quant late", lambda: v_up_group_quant(x, plain))
print(json.dumps(said))
"""


def test_every_door_says_what_a_cpu_needs() -> None:
    """In a process that has not chosen the interpreter; what only compiles is let through."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={
            **{name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"},
            "PYTHONPATH": str(Path(kernel_compass.__file__).parents[1]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    compiled = {name: text for name, text in said.items() if name.endswith(" compiled")}
    assert len(compiled) > 10 and all(compiled.values())
    assert {name.split()[0] for name in compiled} >= {"own_decode", "own_w8a8", "study_w8a8"}
    for name, text in said.items():
        if name not in compiled:
            assert text is not None and "set TRITON_INTERPRET=1 before Python" in text, name
