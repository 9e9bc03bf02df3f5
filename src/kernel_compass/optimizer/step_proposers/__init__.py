"""Sources of changes to a step, a file a kind of change; one contract (`StepProposer`)."""

from __future__ import annotations

from kernel_compass.optimizer.step_doors import StepProposer
from kernel_compass.optimizer.step_proposers.attention import Attention
from kernel_compass.optimizer.step_proposers.compiling import Compiling
from kernel_compass.optimizer.step_proposers.graph import Graph
from kernel_compass.optimizer.step_proposers.layout import Layout
from kernel_compass.optimizer.step_proposers.precision import Precision
from kernel_compass.optimizer.step_proposers.products import Products, SharedInputs
from kernel_compass.optimizer.step_proposers.triton_configs import TritonConfigs


def step_proposers(most_configs: int) -> tuple[StepProposer, ...]:
    """All of them."""
    return (
        Graph(),
        Compiling(),
        Products(),
        SharedInputs(),
        TritonConfigs(most_configs),
        Attention(),
        Precision(),
        Layout(),
    )
