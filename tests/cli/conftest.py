"""Every test here sees the stand-in API and an environment without colour or width."""

from __future__ import annotations

import sys

import pytest
from cli.fake_api import FakeApi

import kernel_compass
from kernel_compass.cli.main import main

VARIABLES = (
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "KERNEL_COMPASS_DEBUG",
)


@pytest.fixture
def api(monkeypatch):
    fake = FakeApi()
    monkeypatch.setitem(sys.modules, "kernel_compass.api", fake)
    monkeypatch.setattr(kernel_compass, "api", fake, raising=False)
    return fake


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def call(api, capfd):
    """Run a command line; returns exit code, standard output, standard error."""

    def run(*words):
        code = main([str(word) for word in words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def captures(tmp_path):
    """Files that exist; the stand-in goes by their names."""
    names = ("good.csv", "other.csv", "damaged.csv")
    for name in names:
        (tmp_path / name).write_text("x")
    return tuple(tmp_path / name for name in names)
