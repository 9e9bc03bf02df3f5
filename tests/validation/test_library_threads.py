"""Threads of a compiler's are not the candidate's, unless they work for it at every call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kept_threads import search_path  # noqa: E402

SRC = Path(__file__).parents[2] / "src"
BEGINNING = """
import threading, torch
from torch._inductor import async_compile, config
from kernel_compass.validation.cheat_parts import honest
from kernel_compass.validation import self_test as tests
from kernel_compass.validation.machines import CpuMachine
from kernel_compass.validation.watch import Watch
"""
POOL = """
watch = Watch(torch)
config.compile_threads = 2
assert async_compile.AsyncCompile.submit(lambda: 3).result() == 3
def serves(): async_compile.AsyncCompile.submit(lambda: sum(range(20000))).result()
serves()
print(watch.running())
print(watch.helped(lambda: None))
print(watch.helped(serves).reason.value)
"""
COMPILED = """
tests.ALL_CHEATS = ()
tests.honest = lambda torch, problem: torch.compile(honest(torch, problem), dynamic=False)
print(tests.self_test(torch, CpuMachine(torch)).honest_rejected)
print(sorted(t.name for t in threading.enumerate()))
"""


def said(program, **variables):
    done = subprocess.run(
        [sys.executable, "-c", BEGINNING + program],
        env={
            **os.environ,
            "PYTHONPATH": search_path(SRC, *filter(None, [os.environ.get("PYTHONPATH")])),
            "OMP_NUM_THREADS": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_compilers_pool_that_serves_every_call_is_found():
    assert said(POOL) == ["None", "None", "keeps_running"]


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_what_a_compilation_leaves_is_no_candidates(tmp_path, threads):
    """With its processes and its pool; and with tqdm's monitor, where that is installed."""
    try:
        from torch._inductor import cpp_builder

        cpp_builder.get_cpp_compiler()
    except Exception as error:  # of several kinds, by version
        pytest.skip(f"Inductor needs a C++ compiler: {error}")
    found = said(
        COMPILED,
        TORCHINDUCTOR_COMPILE_THREADS=threads,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )
    assert found[0] == "None"
