"""What built-in cheats are made of; the list follows what loops of this kind were fooled by.

KernelBench, KernelAgent, robust-kbench and others report them. Each is a candidate for
`self_test_problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_compass.records.trial import Reason
from kernel_compass.validation.self_test_problem import SelfTestProblem

Function = Callable[[Any, Any], Any]
"""`x, w` to the output."""


@dataclass(frozen=True)
class FunctionRunner:
    """A candidate that is one function of all inputs."""

    function: Callable[..., Any]

    def prepare(self, held: Mapping[str, Any]) -> Any:
        """Nothing is kept."""
        return dict(held)

    def run(self, state: Any, given: Mapping[str, Any]) -> Any:
        """Call it."""
        return self.function(**state, **given)


@dataclass(frozen=True)
class Cheat:
    """One way to look right or fast."""

    name: str
    make: Callable[[Any, SelfTestProblem], Function]
    """Of the torch module and the problem."""
    reasons: frozenset[Reason]
    """Any of these is its name."""
    device: str = "cpu"
    """`cuda`: a CPU cannot stage it."""
    undo: Callable[[Any], None] | None = None
    """Puts back what it changed in this process."""


def honest(torch: Any, _: SelfTestProblem) -> Function:
    """The right thing, in other operations than the baseline's."""

    def function(x: Any, w: Any) -> Any:
        logits = torch.einsum("bmk,kn->bmn", x, w)
        shifted = torch.exp(logits - logits.amax(-1, keepdim=True))
        return shifted / shifted.sum(-1, keepdim=True)

    return function


def changed(change: Callable[[Any, Any, Any, Any], Any]) -> Callable[[Any, Any], Function]:
    """A cheat that is the honest result, changed: `change(torch, result, x, w)`."""

    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right = honest(torch, problem)
        return lambda x, w: change(torch, right(x, w), x, w)

    return make


def then(act: Callable[[Any], Any]) -> Callable[[Any, SelfTestProblem], Function]:
    """The honest result, with an act beside it: `act(torch)`."""

    def make(torch: Any, problem: SelfTestProblem) -> Function:
        right = honest(torch, problem)

        def function(x: Any, w: Any) -> Any:
            act(torch)
            return right(x, w)

        return function

    return make


def reasons(*reasons: Reason) -> frozenset[Reason]:
    """Any of these is a cheat's name."""
    return frozenset(reasons)
