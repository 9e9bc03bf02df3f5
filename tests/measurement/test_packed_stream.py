"""The floor's streaming kernel in Triton's interpreter: it reads every byte and writes them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from kernel_compass.errors import UsageError
from kernel_compass.measurement.floors import PACKED_CONFIGS, PackedConfig, PackedShape

needs_triton = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None,
    reason="torch and triton are not installed",
)

PROGRAM = """
import json, sys
import torch
from kernel_compass.measurement.floors import PackedConfig, PackedShape, launch_packed
from kernel_compass.measurement.stream_kernels import stream_packed

sizes, tile, poke = json.loads(sys.argv[1])
shape, config = PackedShape(*sizes), PackedConfig(*tile)
g = torch.Generator().manual_seed(0)
def draw(n):  # small: the interpreter overflows where a GPU wraps
    return torch.randint(-(2**15), 2**15, (n,), dtype=torch.int32, generator=g)
words, scales = draw(shape.words + 64), draw(shape.scale_words + 64)
acts = draw(shape.resident_words + 64)
out = torch.full((shape.outputs + 64,), 12345, dtype=torch.int16)
def launch():
    launch_packed(stream_packed, shape, config, words[: shape.words], scales, acts, out)
launch()
first = out.clone()
changed = []
named = {"words": words, "scales": scales, "acts": acts}
for name, index in poke:  # one word of an operand: the outputs must follow
    operand = named[name]
    operand[index] += 1
    launch()
    changed.append(bool((out[: shape.outputs] != first[: shape.outputs]).any()))
    operand[index] -= 1
programs = -(-shape.words // config.words)
w = words[: shape.words].tolist()
s = scales[: shape.scale_words].tolist()
r = acts[: shape.resident_words].tolist()
share = lambda n: -(-(-(-n // programs)) // 16) * 16
expected = []
for p in range(programs):
    total = sum(w[p * config.words : (p + 1) * config.words])
    total += sum(s[p * share(len(s)) : (p + 1) * share(len(s))])
    total += sum(r[p * share(len(r)) : (p + 1) * share(len(r))])
    count = min(share(shape.outputs), max(shape.outputs - p * share(shape.outputs), 0))
    expected += [(total + 2**15) % 2**16 - 2**15] * count
print(json.dumps({
    "equal": first[: shape.outputs].tolist() == expected,
    "tail": first[shape.outputs :].tolist() == [12345] * 64,
    "changed": changed,
}))
"""


def interpreted(sizes, tile, poke):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([sizes, tile, poke])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@needs_triton
@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        ((8192 * 4, 0, 4096), (1024, 4)),  # no scales, no activations
        ((8192 * 4, 1024, 2 * 512 * 16, 4096), (1024, 4)),
        ((3001 * 4 - 1, 777, 2 * 999, 331), (512, 2)),  # nothing divides anything
        # One program that reads and writes more than it can at a time; no power of two.
        ((40, 4, 2 * 9000, 4 * 5000), (512, 2)),
        ((70_000, 2, 2, 2), (512, 2)),  # fewer outputs, scales, activations than programs
    ],
)
def test_every_output_is_the_sum_of_what_its_program_read(sizes, tile):
    shape = PackedShape(*sizes)
    # Words of the first program, which writes outputs: the first and last of each operand.
    poke = [("words", 0), ("words", min(shape.words, tile[0]) - 1)]
    poke += [("scales", 0)] * bool(shape.scale_words) + [("acts", 0)] * bool(shape.resident_words)
    found = interpreted(sizes, tile, poke)
    assert found["equal"]
    assert found["tail"], "it wrote behind the outputs"
    assert all(found["changed"])


@pytest.mark.parametrize("sizes", [(0, 0, 2), (4, -1, 2), (4, 0, 0), (4, 0, 2, -4)])
def test_no_product_has_no_floor(sizes):
    with pytest.raises(UsageError, match="no product"):
        PackedShape(*sizes)


def test_bytes_are_padded_to_words():
    shape = PackedShape(9, 2, 3, 5)
    assert (shape.words, shape.scale_words, shape.outputs, shape.resident_words) == (3, 1, 2, 2)


def test_a_thread_of_every_tile_reads_whole_vectors():
    for config in PACKED_CONFIGS:
        assert config.words % (config.warps * 32 * 4) == 0
    assert len(set(PACKED_CONFIGS)) == len(PACKED_CONFIGS)
    assert PackedConfig(1024, 4) in PACKED_CONFIGS
