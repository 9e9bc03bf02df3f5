"""Whether the Gluon kernels of `decode_gluon.py` can be used; `decode_plain.py` takes over if not.

Gluon is experimental in Triton and its names change between releases, so it is used with those
releases alone that the kernels were compiled with; see docs/kernels.md.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module

GLUON_RELEASES = ("3.6", "3.8", "3.9")
"""Releases of Triton that `tests/kernels/test_two_tritons.py` passed with."""


def gluon_objection(capability: tuple[int, int] | None) -> str | None:
    """Why the plain kernel has to compute a decode product; `None` = Gluon's kernels can.

    Imports triton where the device is a Hopper GPU.

    Args:
        capability: of the device; `None` = no CUDA device.
    """
    if not is_hopper(capability):
        return "the Gluon kernels are for compute capability 9.x"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "Triton's interpreter (TRITON_INTERPRET=1) does not run Gluon"
    return _software_objection()


def is_hopper(capability: tuple[int, int] | None) -> bool:
    """Whether a device has the instructions of the Gluon kernels."""
    return capability is not None and capability[0] == 9


@cache
def _software_objection() -> str | None:
    try:
        release = str(import_module("triton").__version__)
    except ImportError as error:
        return f"triton cannot be imported: {error}"
    if ".".join(release.split(".")[:2]) not in GLUON_RELEASES:
        known = ", ".join(GLUON_RELEASES)
        return f"the Gluon kernels were tested with Triton {known}, and this is {release}"
    try:
        import_module("kernel_compass.kernels.decode_gluon")
    except Exception as error:  # a moved name or argument may raise anything: none may stop a run
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return f"Triton {release} cannot load the Gluon kernels: {what}"
    return None
