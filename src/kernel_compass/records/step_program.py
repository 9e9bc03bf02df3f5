"""A user's program: what is run, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_INPUTS = 64
"""Of a step: each is called three times at every look at its outputs."""


class ProgramKind(StrEnum):
    """How a program is started."""

    SCRIPT = "script"
    """`python FILE`."""
    MODULE = "module"
    """`python -m NAME`."""
    ENTRY = "entry"
    """A function of a file, called without arguments; where it returns something that can be
    called, that is the step, else calling the function is."""


@dataclass(frozen=True)
class Program:
    """What is run."""

    kind: ProgramKind
    target: str
    """A file, a module's name, or `FILE:FUNCTION`."""
    arguments: tuple[str, ...] = ()
    """What the program finds in `sys.argv` behind its own name."""
    inputs: str = ""
    """What its step's outputs are compared on: `FILE:FUNCTION`, which yields the arguments of
    calls, or how many of the program's own; empty = the captured call alone."""

    @property
    def file(self) -> str | None:
        """The file of a script or an entry; of a module it is not known."""
        if self.kind is ProgramKind.MODULE:
            return None
        return self.target if self.kind is ProgramKind.SCRIPT else self.target.rpartition(":")[0]

    @property
    def function(self) -> str | None:
        """Of an entry."""
        return self.target.rpartition(":")[2] if self.kind is ProgramKind.ENTRY else None

    @property
    def inputs_file(self) -> str | None:
        """The file of the function that yields inputs."""
        return self.inputs.rpartition(":")[0] if ":" in self.inputs else None

    @property
    def own_inputs(self) -> int:
        """How many of the program's own calls outputs are compared on; the last one is of them."""
        return int(self.inputs) if self.inputs.isdecimal() else 1
