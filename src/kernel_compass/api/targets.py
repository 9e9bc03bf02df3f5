"""What a device is for those who plan for it: implementations, and what checks their names."""

from __future__ import annotations

from kernel_compass.kernels.library import torch_library
from kernel_compass.records.contracts import Target
from kernel_compass.records.device import CPU, SIMULATED


def target_named(device: str) -> Target:
    """What a device is for implementations; a simulated one is planned for as an H200."""
    if device == CPU:
        return Target(CPU)
    if device == SIMULATED:
        return Target("cuda", (9, 0), "NVIDIA H200", 132, planned=True)
    torch = torch_library()
    found = torch.cuda.get_device_properties(device)
    capability = (int(found.major), int(found.minor))
    return Target("cuda", capability, str(found.name), int(found.multi_processor_count))
