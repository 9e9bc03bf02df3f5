"""What is told of a Triton kernel: its source with what it calls, its launch, its choices."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernel_compass.profiling.step_triton import (
    foreseen,
    launches_seen,
    settled,
    source_sha256,
)

triton = pytest.importorskip("triton")
torch = pytest.importorskip("torch")

KERNELS = """
import triton, triton.language as tl
@triton.jit
def inner(x):
    return x * 2
@triton.jit
def double(x):
    return inner(x)
@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr, EXACT: tl.constexpr = True):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, double(tl.load(x + at, mask=at < n)), mask=at < n)
CHOICES = [triton.Config({"BLOCK": 32}, num_warps=2), triton.Config({"BLOCK": 64})]
@triton.autotune(CHOICES, key=["n"])
@triton.heuristics({"EXACT": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
tuned.__dict__["do_bench"] = lambda call, quantiles: (call(), [1.0] * 3)[1]
"""
_NUMBERS = itertools.count()


def loaded(folder: Path, text: str) -> ModuleType:
    file = folder / f"kernels_{next(_NUMBERS)}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_hash_is_of_the_text_and_of_what_it_calls(tmp_path: Path) -> None:
    first = loaded(tmp_path, KERNELS)
    moved = loaded(tmp_path, f"\n\n# a comment\n{KERNELS}")
    other = loaded(tmp_path, KERNELS.replace("return x * 2", "return x + x"))
    assert source_sha256(first.plain) == source_sha256(moved.plain)
    assert source_sha256(first.plain) != source_sha256(other.plain)
    assert source_sha256(first.tuned) == source_sha256(other.tuned)
    assert source_sha256(first.tuned) == source_sha256(first.tuned.fn)


@pytest.fixture
def interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return loaded(tmp_path, KERNELS)


def seen(call: Any) -> list[Any]:
    found: list[Any] = []

    def around(launch: Any, go: Any) -> Any:
        foreseen(launch)
        result = go()
        found.append(settled(launch))
        return result

    with launches_seen(around):
        call()
    return found


def test_a_plain_launch(interpreted: ModuleType) -> None:
    x, y = torch.arange(40.0), torch.zeros(40)
    (launch,) = seen(lambda: interpreted.plain[(2,)](x, y, n=40, BLOCK=32, num_warps=8))
    assert launch.grid == (2,)
    assert launch.config == {"BLOCK": 32, "EXACT": True, "num_warps": 8}
    assert set(launch.arguments) == {"x", "y", "n"}
    assert launch.arguments["y"] is y
    assert launch.choices == ()
    assert torch.equal(y, 2 * x)


def test_an_autotuned_launch_is_one_and_says_what_was_chosen(interpreted: ModuleType) -> None:
    x, y = torch.arange(40.0), torch.zeros(40)

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(40, meta["BLOCK"]),)

    (launch,) = seen(lambda: interpreted.tuned[grid](x, y, 40))
    assert [choice["BLOCK"] for choice in launch.choices] == [32, 64]
    assert launch.config["BLOCK"] == 32
    assert launch.config["EXACT"] is False
    assert launch.config["num_warps"] == 2
    assert launch.grid == (2,)
    assert torch.equal(y, x)


def test_nothing_stays_in_place(interpreted: ModuleType) -> None:
    kinds = [type(interpreted.plain), type(interpreted.tuned)]
    before = [kind.run for kind in kinds]
    with pytest.raises(ValueError, match="stop"):
        seen(lambda: (_ for _ in ()).throw(ValueError("stop")))
    assert [kind.run for kind in kinds] == before
