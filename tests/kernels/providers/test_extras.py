"""What the extra `providers` asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from kernel_compass.kernels.providers.base import Library
from kernel_compass.kernels.providers.registry import all_implementations, all_providers

ROOT = Path(__file__).parents[3]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def test_the_extra_installs_every_library_and_nothing_that_a_serving_image_has() -> None:
    wanted = {re.split(r"[<>=;\[ ]", one)[0]: one for one in EXTRAS["providers"]}
    libraries = [one for one in all_providers() if one.extra == "providers"]
    assert set(wanted) == {one.package for one in libraries if isinstance(one, Library)}
    assert not set(wanted) & {"torch", "triton", "numpy"}


def test_versions_are_bounded_above_where_functions_are_called_that_may_change() -> None:
    for requirement in EXTRAS["providers"]:
        assert re.search(r">=[\d.]+(post\d+)?,<\d", requirement), requirement


def test_the_page_names_every_implementation_of_a_library() -> None:
    page = (ROOT / "docs" / "providers.md").read_text()
    libraries = [one.name for one in all_implementations() if one.provider != "own"]
    assert [name for name in libraries if f"`{name}`" not in page] == []
