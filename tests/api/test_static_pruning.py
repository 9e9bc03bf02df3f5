"""A space compiled without a GPU, in processes that may crash or hang."""

from __future__ import annotations

import os
import signal
import time
from importlib.util import find_spec

import pytest

from kernel_compass.api.compile_pool import CompilePool
from kernel_compass.api.static_pruning import StaticRequest, compile_space
from kernel_compass.kernels.cubin import loop_instructions
from kernel_compass.kernels.decode import DecodeConfig
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload


def behave(what):
    if what == "raise":
        raise ValueError("it will not do")
    if what == "exit":
        os._exit(7)
    if what == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(600)
    return what


def test_a_call_that_crashes_or_hangs_costs_itself_alone():
    calls = [(w,) for w in ("1", "raise", "exit", "2", "die", "hang", "3", "4")]
    found = {a.index: a for a in CompilePool(behave, 2, timeout_s=6).run(calls)}
    assert [found[i].value for i in range(8)] == ["1", None, None, "2", None, None, "3", "4"]
    assert found[1].failure == "ValueError: it will not do"
    assert "7" in found[2].failure
    assert str(-signal.SIGSEGV) in found[4].failure
    assert "6 s" in found[5].failure
    assert [i for i in range(8) if found[i].lost] == [2, 4, 5]


def test_when_the_time_for_all_is_over_the_rest_is_lost():
    begun = time.monotonic()
    calls = [("1",), ("hang",), ("2",)]
    found = {a.index: a for a in CompilePool(behave, 1, timeout_s=60, budget_s=4).run(calls)}
    assert time.monotonic() - begun < 20
    assert [found[i].lost for i in range(3)] == [False, True, True]
    assert found[0].value == "1"
    assert "no time left" in found[2].failure


SASS = """
.text.k:
        /*0000*/                   LDG.E.128 R4, [R2] ;
.L_x_0:
        /*0010*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0020*/                   STL [R1], R4 ;
        /*0030*/              @P0  BRA `(.L_x_0) ;
        /*0040*/                   STG.E.128 [R2], R8 ;
        /*0050*/              @P1  BRA `(.L_x_2) ;
        /*0060*/                   LDL R4, [R1] ;
.L_x_2:
        /*0070*/                   EXIT ;
.L_x_1:
        /*0080*/                   BRA `(.L_x_1);
"""


def test_what_stands_in_loops():
    assert loop_instructions(SASS) == {"BRA": 1, "HMMA": 1, "STL.32": 1}


@pytest.mark.skipif(
    not (find_spec("torch") and find_spec("triton")), reason="compiling needs torch and triton"
)
def test_a_space_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    request = StaticRequest(
        "own_decode", Workload(Op.BMM, 4, 16, 128, 512), NumberFormat.parse("w8a16_fp8"), (9, 0)
    )
    configs = [
        DecodeConfig("wgmma", 1, 4, rows=128, tokens=16).as_config(),
        DecodeConfig("mma", 1, 4, rows=128, tokens=16).as_config(),
        DecodeConfig("mma", 3, 4, rows=128, tokens=16).as_config(),  # three is no power of two
    ]
    said = []
    first = compile_space(
        request, configs, processes=1, folder=tmp_path, progress=lambda d, n: said.append((d, n))
    )
    assert said == [(0, 3), (1, 3), (2, 3), (3, 3)]
    wide, narrow, bad = first
    assert (wide.figures["hgmma"] > 0, wide.figures["hmma"]) == (True, 0)
    assert (narrow.figures["hgmma"], narrow.figures["hmma"] > 0) == (0, True)
    assert wide.figures["threads"] == narrow.figures["threads"] == 128
    assert bad.figures is None
    assert bad.failure
    next(tmp_path.iterdir()).write_text("{")
    said.clear()
    again = compile_space(
        request, configs, processes=1, folder=tmp_path, progress=lambda d, n: said.append((d, n))
    )
    assert again == first
    assert said == [(2, 3), (3, 3)], "what is remembered is compiled again, or a torn file believed"
