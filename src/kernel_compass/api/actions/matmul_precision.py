"""float32 products in TF32: torch's own switch, set and put back.

The switch is the process's, so it holds for all threads.
"""

from __future__ import annotations

from kernel_compass.api.actions.context import Context, Undo
from kernel_compass.kernels.library import torch_library
from kernel_compass.records.step_action import StepAction

VALUES = ("highest", "high", "medium")


def objection(action: StepAction, context: Context) -> str | None:
    """Why it cannot be put on; `None` = it can."""
    value = action.settings.get("precision", "high")
    if value not in VALUES:
        return f"{value!r} is no precision of float32 products: {', '.join(VALUES)}"
    application = context.of(action)
    if not application.fits(context.here):
        return application.objection
    try:
        torch_library().get_float32_matmul_precision()
    except RuntimeError as error:
        return f"the program sets precisions in two ways, and torch refuses: {error}"
    return None


def put_on(action: StepAction, context: Context) -> Undo:
    """Set the switch."""
    torch = torch_library()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(action.settings.get("precision", "high"))
    context.of(action).on = True
    return lambda: torch.set_float32_matmul_precision(before)
