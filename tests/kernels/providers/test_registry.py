"""Who offers what, and the words of a refusal; without torch as well."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_compass.errors import UsageError
from kernel_compass.kernels.providers import base
from kernel_compass.kernels.providers.registry import (
    all_implementations,
    all_providers,
    implementation,
    implementations_for,
    why_none,
)
from kernel_compass.records.contracts import Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Op, Workload

H200 = Target("cuda", (9, 0), "NVIDIA H200", 132)
A100 = Target("cuda", (8, 0), "NVIDIA A100", 108)
ABSORB = Workload(Op.BMM, 128, 1, 128, 512)
DENSE = Workload(Op.LINEAR, 1, 16, 4096, 4096)


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "installed", lambda package: "1.0")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "installed", lambda package: None)


def usable(workload: Workload, name: str, target: Target) -> set[str]:
    return {one.name for one in implementations_for(workload, NumberFormat.parse(name), target)[0]}


def libraries() -> set[str]:
    """Own kernels come beside these, and need none of them."""
    return {one.name for one in all_implementations() if one.provider != "own"}


def refusal(name: str, workload: Workload, number_format: str, target: Target) -> str:
    refused = implementations_for(workload, NumberFormat.parse(number_format), target).refused
    return refused[name]


def said_by(program: str, *first: str) -> str:
    """What a program prints in a Python of its own, with the package and `first` in its path."""
    path = [*first, *(p for p in sys.path if p.endswith("src"))]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{program}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_are_unique_and_each_belongs_to_its_provider() -> None:
    names = [one.name for one in all_implementations()]
    assert len(names) == len(set(names))
    assert len({one.name for one in all_providers()}) == len(all_providers())
    for provider in all_providers():
        assert provider.implementations()
        assert {one.provider for one in provider.implementations()} == {provider.name}


def test_an_implementation_is_found_by_its_name() -> None:
    assert implementation("cublas_bf16").name == "cublas_bf16"
    with pytest.raises(UsageError, match="cublas_bf16"):
        implementation("cublas_bf17")


def test_a_library_that_is_not_installed_has_no_version() -> None:
    absent = base.Library(name="absent", package="no-such-distribution-4711", offered=())
    assert absent.version() is None
    assert base.Library(name="pytest", package="pytest", offered=()).version() == pytest.__version__


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_library_is_refused_with_the_command_that_installs_it() -> None:
    assert usable(DENSE, "w4a16_g128", H200) & libraries() == set()
    refused = implementations_for(DENSE, NumberFormat.parse("w4a16_g128"), H200).refused
    assert libraries() <= set(refused)
    assert (
        refused["gemlite_w4a16"]
        == "gemlite is not installed: pip install '.[providers]' in a checkout of kernel-compass"
    )
    assert refused["cublas_bf16"].startswith("torch is not installed: pip install torch")


@pytest.mark.usefixtures("everything_installed")
@pytest.mark.parametrize(
    ("workload", "number_format", "target", "names"),
    [
        (ABSORB, "bf16", H200, {"cublas_bf16", "torch_compile_bf16"}),
        (ABSORB, "w4a16_g128", H200, set()),
        (DENSE, "fp16", H200, {"cublas_bf16", "torch_compile_bf16"}),
        (DENSE, "w4a16_g128", H200, {"tinygemm_w4", "gemlite_w4a16", "humming_w4a16"}),
        (DENSE, "w4a16_g64_asym", A100, {"tinygemm_w4", "gemlite_w4a16", "humming_w4a16"}),
        (DENSE, "w4a16_gk", H200, {"gemlite_w4a16", "humming_w4a16"}),
        (DENSE, "w8a16_fp8", H200, {"gemlite_w8a16", "humming_w8a16"}),
        (
            DENSE,
            "w8a16_int8",
            H200,
            {"gemlite_w8a16", "humming_w8a16", "torchao_int8_weight_only"},
        ),
        (DENSE, "w8a8_int8", H200, {"int_mm", "gemlite_w8a8"}),
        (DENSE, "w8a8_fp8", H200, {"scaled_mm_fp8", "gemlite_w8a8", "torchao_float8_dynamic"}),
        (DENSE, "w8a8_fp8", A100, set()),
        (DENSE, "w8a8_fp8_block", H200, {"gemlite_w8a8"}),
    ],
)
def test_who_computes_what(
    workload: Workload, number_format: str, target: Target, names: set[str]
) -> None:
    # own kernels come beside these: libraries alone are counted
    libraries = {
        one.name for p in all_providers() if p.name != "own" for one in p.implementations()
    }
    assert usable(workload, number_format, target) & libraries == names


@pytest.mark.usefixtures("everything_installed")
@pytest.mark.parametrize(
    ("name", "workload", "number_format", "target", "reason"),
    [
        (
            "tinygemm_w4",
            ABSORB,
            "w4a16_g128",
            H200,
            "multiplies one matrix a launch, and bmm has H = 128",
        ),
        (
            "tinygemm_w4",
            DENSE,
            "w4a16_gk",
            H200,
            "groups must be of 32, 64, 128 or 256, not 4096",
        ),
        ("cublas_bf16", DENSE, "w8a8_fp8", H200, "computes bf16, fp16, not w8a8_fp8"),
        (
            "scaled_mm_fp8",
            DENSE,
            "w8a8_fp8",
            A100,
            "needs compute capability 8.9 or newer, this GPU has 8.0",
        ),
        (
            "int_mm",
            Workload(Op.LINEAR, 1, 1, 4096, 4100),
            "w8a8_int8",
            H200,
            "N must be a multiple of 8, and is 4100",
        ),
        (
            "gemlite_w4a16",
            DENSE,
            "w4a16_g128",
            Target("cpu"),
            "needs an NVIDIA GPU (compute capability 8.0 or newer)",
        ),
        (
            "torchao_int8_dynamic",
            DENSE,
            "w8a8_int8",
            H200,
            "needs 17 or more tokens, and M is 16",
        ),
        (
            "humming_w4a16",
            Workload(Op.LINEAR, 1, 1, 4096 + 32, 4096),
            "w4a16_g32",
            H200,
            "K must be a multiple of 64, and is 4128",
        ),
    ],
)
def test_refusals_name_what_was_found_and_what_is_needed(
    name: str, workload: Workload, number_format: str, target: Target, reason: str
) -> None:
    assert refusal(name, workload, number_format, target) == reason


def test_the_registry_imports_no_library() -> None:
    program = (
        "import sys\n"
        "for name in ('torch', 'triton', 'gemlite', 'humming', 'torchao'):\n"
        "    sys.modules[name] = None\n"
        "from kernel_compass.kernels.providers import registry\n"
        "print(len(registry.all_implementations()))"
    )
    assert int(said_by(program)) == len(all_implementations())


@pytest.mark.parametrize("error", [RuntimeError("mismatch\nof versions"), SystemExit("no license")])
def test_a_library_that_fails_when_asked_costs_itself_alone(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(*_: object) -> str | None:
        raise error

    monkeypatch.setattr(type(implementation("cublas_bf16")), "supports", fails)
    found = implementations_for(DENSE, NumberFormat.parse("bf16"), H200)
    reason = found.refused["cublas_bf16"]
    assert f"({type(error).__name__}: {str(error).splitlines()[0]})" in reason
    assert len(found.usable) + len(found.refused) == len(all_implementations())


def test_a_broken_triton_leaves_the_other_libraries(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise RuntimeError('no libcuda')")
    program = (
        "from kernel_compass.kernels.providers.registry import implementations_for\n"
        "from kernel_compass.records.contracts import Target\n"
        "from kernel_compass.records.number_format import NumberFormat\n"
        "from kernel_compass.records.workload import Op, Workload\n"
        "found = implementations_for(Workload(Op.LINEAR, 1, 16, 4096, 4096),\n"
        "    NumberFormat.parse('w8a8_fp8'), Target('cuda', (9, 0), 'x', 132))\n"
        "print(found.refused['own_w8a8'])"
    )
    found = said_by(program, str(tmp_path)).strip()
    assert "RuntimeError: no libcuda" in found or "torch and triton are not installed" in found


@pytest.mark.usefixtures("nothing_installed")
def test_for_a_plan_libraries_count_as_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left to refuse is what the library cannot do there."""
    for name in ("torch", "triton"):
        monkeypatch.setitem(sys.modules, name, None)
    planned = replace(H200, planned=True)
    assert "gemlite_w4a16" in usable(DENSE, "w4a16_g128", planned)
    assert {"own_w8a8", "scaled_mm_fp8"} <= usable(DENSE, "w8a8_fp8", planned)
    assert "multiplies one matrix" in refusal("gemlite_w4a16", ABSORB, "w4a16_gk", planned)
    assert "own_w8a8" not in usable(DENSE, "w8a8_fp8", replace(A100, planned=True))
    assert "own_w8a8" in usable(DENSE, "w8a8_fp8", Target("cuda", planned=True))
    assert "own_w8a8" not in usable(DENSE, "w8a8_fp8", Target("cuda"))


def test_a_name_that_is_none_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(UsageError) as caught:
        implementation("own_decod")
    assert caught.value.remedy.startswith("The nearest: own_decode, ")
    assert all(one.name in caught.value.remedy.split("All: ")[1] for one in all_implementations())
    with pytest.raises(UsageError, match=r"'zzz'\. All: "):
        implementation("zzz")


def test_why_none_names_those_whose_format_it_nearly_is() -> None:
    many = replace(ABSORB, heads=70_000)
    refused = implementations_for(many, NumberFormat.parse("w4a16_gk"), H200).refused
    why = why_none({**refused, "own_decode": "H = 70000 is over the grid's 65535"})
    assert "own_decode: H = 70000" in why and "cublas_bf16" not in why
    only = why_none({"own_decode": "own_decode does not compute it", "x": "computes bf16, not it"})
    assert only.endswith("can; own_decode does not compute it; x: computes bf16, not it")
