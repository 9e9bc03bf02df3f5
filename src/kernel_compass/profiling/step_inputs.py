"""What a step is called with: in the captured call, and in others that its outputs are compared on.

Others come from one of three places: a user's function that yields them, calls of the program's own
that were kept while it ran, or more draws of a problem's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kernel_compass.errors import ProfilingError, UsageError
from kernel_compass.profiling.step_running import failed, inputs_function_of, print_error
from kernel_compass.profiling.step_tensors import copied
from kernel_compass.records.step_program import MOST_INPUTS, Program

HELD = 2
"""Times as many calls are held while a program runs as are asked for."""


@dataclass(frozen=True)
class CallState:
    """What of torch's state around a call decides what the call does."""

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, Any], ...]
    """Device and type where it is on."""

    @classmethod
    def now(cls, torch: Any) -> CallState:
        """That of this thread."""
        on = [d for d in ("cuda", "cpu") if torch.is_autocast_enabled(d)]
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple((device, torch.get_autocast_dtype(device)) for device in on),
        )

    @contextmanager
    def restored(self, torch: Any) -> Iterator[None]:
        """The state again."""
        with ExitStack() as stack:
            if self.inference:
                stack.enter_context(torch.inference_mode())
            stack.enter_context(torch.set_grad_enabled(self.grad))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield


@dataclass(frozen=True)
class StepInput:
    """What one call is given."""

    name: str
    """`input 2`, `call 17`."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    state: CallState | None = None


class Spread:
    """Some of many things, the first among them and the others evenly spread over all.

    How many there will be is not known: twice as many as asked for are held, every second of them
    let go whenever they become more.

    Args:
        most: of those asked for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._stride = 1
        self._held: list[tuple[int, Any]] = []

    def offer(self, number: int, one: Any) -> None:
        """The next of them, counted from 0."""
        if self._most < 1 or number % self._stride:
            return
        self._held.append((number, one))
        while len(self._held) > HELD * self._most:
            self._stride *= 2
            self._held = [(at, held) for at, held in self._held if at % self._stride == 0]

    def before(self, last: int) -> list[Any]:
        """As many as asked for of those before one of them."""
        held = [one for at, one in self._held if at < last]
        count = min(self._most, len(held))
        return [held[at * len(held) // count] for at in range(count)]


def copies(torch: Any, value: Any) -> Any:
    """Copies of tensors in plain lists, tuples and dicts; of everything else the same object."""
    if isinstance(value, torch.nn.Parameter):
        return value
    if isinstance(value, torch.Tensor):
        return value if value.grad_fn is not None else copied(torch, value)
    if type(value) is list or type(value) is tuple:
        return type(value)(copies(torch, one) for one in value)
    if type(value) is dict:
        return {key: copies(torch, one) for key, one in value.items()}
    return value


def yielded(torch: Any, program: Program) -> list[StepInput]:
    """What the user's function of inputs gives, copied as it comes: it may use memory again.

    Raises:
        UsageError: there is no such function, or it gives no arguments.
        ProfilingError: it fails.
    """
    function = inputs_function_of(program)
    try:
        given: list[Any] = []
        for one in islice(_all_of(function(), program.inputs), MOST_INPUTS + 1):
            given.append(copies(torch, one))
    except (UsageError, ProfilingError):
        raise
    except Exception as error:
        print_error(error)
        raise failed(program.inputs, error) from error
    if not given or len(given) > MOST_INPUTS:
        count = "no inputs" if not given else f"more than {MOST_INPUTS} inputs"
        found = f"{program.inputs} gives {count}."
        raise UsageError(found, f"Let it yield 1 to {MOST_INPUTS} tuples of arguments.")
    return [_input(at, one, program.inputs) for at, one in enumerate(given, 1)]


def drawn(draw: Callable[[], tuple[Any, ...]], count: int) -> list[StepInput]:
    """More draws of a problem's file, behind its first."""
    return [StepInput(f"input {at}", draw()) for at in range(2, count + 1)]


def _all_of(found: Any, word: str) -> Iterable[Any]:
    if isinstance(found, Mapping) or not isinstance(found, Iterable):
        said = f"{word} gives a {type(found).__name__}."
        raise UsageError(said, "Let it yield tuples, each with the arguments of one call.")
    return found


def _input(number: int, one: Any, word: str) -> StepInput:
    name = f"input {number}"
    if isinstance(one, tuple | list):
        return StepInput(name, tuple(one))
    if isinstance(one, dict) and all(isinstance(key, str) for key in one):
        return StepInput(name, (), one)
    found = f"{word} gives a {type(one).__name__} as input {number}."
    remedy = "Let it yield a tuple with the arguments of a call, or a dict of named ones."
    raise UsageError(found, remedy)
