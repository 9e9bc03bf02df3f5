"""PyTorch, imported when it is first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kernel_compass.errors import INSTALL_TORCH, MissingDependency


def torch_library() -> Any:
    """The module `torch`.

    Raises:
        MissingDependency: it is not installed.
    """
    try:
        return import_module("torch")
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "PyTorch is not installed: weights are its tensors.", f"Install it: {INSTALL_TORCH}."
        ) from error
