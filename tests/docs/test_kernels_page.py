"""The plans, the picture and the sentence on docs/kernels.md are what the commands give."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kernel_compass import api
from kernel_compass.cli.main import main
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.profile import Regime

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
PLANS = re.findall(r"^    kernel-compass (\w+ --dry-run .*)\n\n```\n([^`]*)```", PAGE, re.MULTILINE)
DRAWN = re.findall(r"^    kernel-compass (.* --plot (\S+))$", PAGE, re.MULTILINE)


@pytest.fixture(autouse=True)
def _plain_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path))


def test_both_commands_have_a_plan() -> None:
    assert [command.split()[0] for command, _ in PLANS] == ["mla", "sweep"]


@pytest.mark.parametrize(("command", "block"), PLANS, ids=["mla", "sweep"])
def test_a_plan_is_what_its_command_prints(
    command: str, block: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of it but the calibration's notes and the legend, which follow."""
    assert main(shlex.split(command)) == 0
    printed = capfd.readouterr().out
    assert printed.startswith(block)
    assert " us" not in re.sub(r"^calibration .*$", "", printed[len(block) :], flags=re.MULTILINE)


def test_the_picture_is_what_its_command_draws(tmp_path: Path) -> None:
    ((command, picture),) = DRAWN
    drawn = tmp_path / "drawn.svg"
    words = [str(drawn) if word == picture else word for word in shlex.split(command)]
    assert main(words) == 0
    assert drawn.read_bytes() == (ROOT / picture).read_bytes()


def test_what_fewer_bytes_are_worth_on_eight_gpus() -> None:
    (stated,) = re.findall(r"four times fewer bytes are worth\s+([\d.]+) us of floor", PAGE)
    formats = tuple(map(NumberFormat.parse, ("bf16", "w4a16_gk")))
    items = api.mla_items("deepseek-v3", [1, 64], 8)
    rows = api.plan_kernels(api.TableRequest(items, formats, (Regime.COLD,)), "h200").rows
    floors = {(row.workload, row.format.name): row.floor_us for row in rows}
    for item in items:
        won = floors[item.workload, "bf16"] - floors[item.workload, "w4a16_gk"]
        assert f"{won:.1f}" == stated
