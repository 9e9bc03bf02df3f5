"""Requests become command lines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kernel_compass.errors import UsageError
from kernel_compass.profiling import metric_lists
from kernel_compass.profiling.device_probe import Gpu, choose_metrics
from kernel_compass.profiling.ncu_command import (
    RunSpec,
    export_argv,
    ncu_environment,
    profile_argv,
)
from kernel_compass.profiling.ncu_regimes import plan
from kernel_compass.profiling.ncu_tool import NcuTool
from kernel_compass.records.profile import Regime
from kernel_compass.records.request import ProfileRequest

OPTIONS = frozenset(
    (
        *("--config-file", "--target-processes", "--cache-control", "--clock-control"),
        *("--replay-mode", "--app-replay-match", "--app-replay-mode", "--graph-profiling"),
        *("--check-exit-code", "--import-source", "--import-sass", "--kernel-name-base"),
        *("--kernel-name", "--nvtx", "--nvtx-include", "--launch-skip", "--launch-count"),
    )
)
TOOL = NcuTool("/opt/ncu", "2025.3.1", OPTIONS)
METRICS = choose_metrics([Gpu("NVIDIA H200", "9.0", "580")])


def argv_of(spec: RunSpec, request: ProfileRequest, tool: NcuTool = TOOL) -> list[str]:
    return profile_argv(tool, spec, request, Path("/t/r.ncu-rep"), Path("/t/l.log"))


def values(argv: list[str]) -> dict[str, str]:
    return {a: b for a, b in pairwise(argv) if a.startswith("--")}


@pytest.mark.parametrize("cc", metric_lists.ARCHITECTURES)
@pytest.mark.parametrize(
    ("regime", "cache"), [(Regime.COLD, "all"), (Regime.WARM, "none"), (Regime.IN_SITU, "none")]
)
def test_base_run_of_each_regime(cc: str, regime: Regime, cache: str) -> None:
    metrics = choose_metrics([Gpu("a GPU", cc, "580")])
    (one,) = plan([regime], metrics)
    argv = argv_of(one.base, ProfileRequest(("python", "x.py")))
    assert argv[0] == "/opt/ncu"
    assert argv[-2:] == ["python", "x.py"]
    expected = {
        "--config-file": "off",
        "--target-processes": "all",
        "--cache-control": cache,
        "--clock-control": "none",
        "--replay-mode": "kernel",
        "--graph-profiling": "node",
        "--check-exit-code": "yes",
        "--import-source": "no",
        "--import-sass": "no",
        "--metrics": ",".join(metric_lists.metric_list(cc)),
        "--export": "/t/r.ncu-rep",
        "--log-file": "/t/l.log",
    }
    assert expected.items() <= values(argv).items()
    assert not {"--kernel-name", "--nvtx", "--launch-skip", "--launch-count"} & set(argv)


def test_in_situ_counts_residency_in_one_pass_and_falls_back_to_the_program() -> None:
    (one,) = plan([Regime.IN_SITU], METRICS)
    assert one.residency is not None
    assert one.fallback is not None
    short = values(argv_of(one.residency, ProfileRequest(("x",))))
    assert (short["--replay-mode"], short["--cache-control"]) == ("kernel", "none")
    assert len(short["--metrics"].split(",")) == 6
    again = values(argv_of(one.fallback, ProfileRequest(("x",))))
    assert (again["--replay-mode"], again["--app-replay-mode"]) == ("application", "relaxed")


def test_in_situ_shares_the_run_of_warm() -> None:
    in_situ, warm, cold = plan([Regime.IN_SITU, Regime.WARM, Regime.COLD], METRICS)
    assert in_situ.base == warm.base
    assert {warm.base.name, cold.base.name} == {"warm", "cold"}
    (alone,) = plan([Regime.IN_SITU, Regime.IN_SITU], METRICS)
    assert alone.base.name == "in_situ_rest"


@pytest.mark.parametrize("regimes", [(), (Regime.UNKNOWN,), (Regime.WARM, Regime.UNKNOWN)])
def test_no_regime_is_an_error(regimes: tuple[Regime, ...]) -> None:
    with pytest.raises(UsageError):
        plan(regimes, METRICS)


def test_filters() -> None:
    request = ProfileRequest(
        ("x",), kernels="^(?!.*nccl)", nvtx="decode/", launch_skip=3, launch_count=5
    )
    argv = argv_of(plan([Regime.WARM], METRICS)[0].base, request)
    shown = values(argv)
    assert shown["--kernel-name"] == "regex:^(?!.*nccl)"
    assert shown["--kernel-name-base"] == "function"
    assert "--nvtx" in argv
    assert shown["--nvtx-include"] == "decode/"
    assert (shown["--launch-skip"], shown["--launch-count"]) == ("3", "5")


def test_options_an_older_ncu_lacks_are_left_out() -> None:
    old = NcuTool("/opt/ncu", "2021.1.0", OPTIONS - {"--import-sass", "--graph-profiling"})
    argv = argv_of(plan([Regime.WARM], METRICS)[0].base, ProfileRequest(("x", "no")), old)
    assert not {"--import-sass", "--graph-profiling"} & set(argv)
    assert "--import-source" in argv


@pytest.mark.parametrize(
    "command",
    [
        ("/opt/my program/run", "a b", "it's", '"quoted"', "$HOME", "--metrics", "x"),
        ("/usr/bin/python3", "-m", "package.module", "--flag=1", ""),
        ("./a.out", "-c", "--", "*"),
    ],
)
def test_arguments_of_the_target_are_not_touched(command: tuple[str, ...]) -> None:
    argv = argv_of(plan([Regime.WARM], METRICS)[0].base, ProfileRequest(command))
    assert tuple(argv[-len(command) :]) == command


def test_export_is_raw_csv_in_base_units() -> None:
    argv = export_argv(TOOL, Path("/t/r.ncu-rep"), Path("/t/t.csv"))
    assert argv[:3] == ["/opt/ncu", "--import", "/t/r.ncu-rep"]
    assert "--csv" in argv
    assert {"--page": "raw", "--print-units": "base", "--log-file": "/t/t.csv"}.items() <= values(
        argv
    ).items()


def test_locale_of_ncu_is_c() -> None:
    environment = ncu_environment({"LC_ALL": "de_DE.UTF-8", "HOME": "/h"})
    assert environment == {"LC_ALL": "C", "HOME": "/h"}
