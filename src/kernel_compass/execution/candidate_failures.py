"""What an exception in a worker means for the candidate: a reason of the closed list."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

from kernel_compass.errors import shortened
from kernel_compass.execution.task_channel import AnswerTooLong
from kernel_compass.records.execution import TaskFailure
from kernel_compass.records.trial import Reason

_LONGEST = 2000
_CHAIN = 8

_FATAL = re.compile(
    r"illegal memory access|misaligned address|an illegal instruction was encountered"
    r"|unspecified launch failure|invalid program counter|invalid address space"
    r"|hardware stack error|device-side assert|CUDA_ERROR_(ILLEGAL_\w+|MISALIGNED_ADDRESS"
    r"|LAUNCH_FAILED|INVALID_PC|INVALID_ADDRESS_SPACE|HARDWARE_STACK_ERROR|ASSERT)"
    r"|uncorrectable (ECC|NVLink) error",
    re.IGNORECASE,
)
"""Errors of CUDA after which its context is dead."""

_NO_MEMORY = re.compile(
    r"CUDA (driver )?(error|out of memory).*out of memory|CUDA out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|can't allocate memory",
    re.IGNORECASE | re.DOTALL,
)
_TOO_LATE = re.compile(r"launch timed out and was terminated|CUDA_ERROR_LAUNCH_TIMEOUT", re.I)
_BUILDING = frozenset(
    [
        "CompilationError",
        "CompileTimeAssertionFailure",
        "UnsupportedLanguageConstruct",
        "PTXASError",
        "MLIRCompilationError",
        "SyntaxError",
        "ImportError",
        "InductorError",
        "LoweringException",
        "BackendCompilerFailed",
        "Unsupported",
        "CppCompileError",
        "CUDACompileError",
        "SubprocException",
        "BuildError",
    ]
)
_FITTING = frozenset(["OutOfResources"])
_MEMORY = frozenset(["OutOfMemoryError", "MemoryError"])
_COMPILER_SAID = re.compile(r"Error building extension|nvrtc: error|PassManager::run failed")


def failure_of(error: BaseException) -> TaskFailure:
    """The reason and one sentence for whatever a task raised."""
    return TaskFailure(_reason(error), _detail(error))


def is_fatal(failure: TaskFailure) -> bool:
    """Whether the process that failed so is of no further use: its memory or context is damaged."""
    return failure.reason in (Reason.ILLEGAL_ACCESS, Reason.OUT_OF_MEMORY, Reason.RUN_TIMEOUT)


def _reason(error: BaseException) -> Reason:
    for one in _chain(error):
        if (known := _known(one)) is not None:
            return known
    return Reason.RAISED


def _known(error: BaseException) -> Reason | None:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    text = _text(error)
    for reason, applies in (
        (Reason.ILLEGAL_ACCESS, _FATAL.search(text)),
        (Reason.OUT_OF_MEMORY, kinds & _MEMORY or _NO_MEMORY.search(text)),
        (Reason.RUN_TIMEOUT, _TOO_LATE.search(text)),
        (Reason.DOES_NOT_FIT, kinds & _FITTING),
        (Reason.BUILD_FAILED, kinds & _BUILDING or _COMPILER_SAID.search(text)),
        (Reason.EXITED, isinstance(error, SystemExit)),
        (Reason.TOO_MUCH_OUTPUT, isinstance(error, AnswerTooLong)),
    ):
        if applies:
            return reason
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """It, and what it says it was caused by."""
    one: BaseException | None = error
    for _ in range(_CHAIN):
        if one is None:
            return
        yield one
        one = one.__cause__


def _detail(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {_text(error)}{where}"


def _text(error: BaseException) -> str:
    """As a message shows it, even where an exception cannot say what it is."""
    try:
        return shortened(str(error), _LONGEST)
    except Exception as fault:
        return f"no text: its __str__ raised {type(fault).__name__}"
