"""PyTorch told that there is a GPU, in a process that only compiles for it. Needs torch.

Together with torch's fake tensors, which have a device and no memory, code that was written for a
GPU runs on a machine without one, up to where it asks for a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

NAME = "a GPU that stands in for {}.{}"
_TOTAL_BYTES = 64 << 30


@contextmanager
def stand_in_gpu(torch: Any, capability: tuple[int, int], multiprocessors: int) -> Iterator[None]:
    """What `torch.cuda` says of its GPU, within the block.

    Args:
        torch: the module.
        capability: of the architecture.
        multiprocessors: what is said to who asks for their number.
    """
    major, minor = capability
    properties = SimpleNamespace(
        name=NAME.format(*capability),
        major=major,
        minor=minor,
        multi_processor_count=multiprocessors,
        total_memory=_TOTAL_BYTES,
        warp_size=32,
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: major >= 8,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "set_device": lambda _device: None,
        "synchronize": lambda *_: None,
        "_exchange_device": lambda _index: 0,
        "_maybe_exchange_device": lambda _index: 0,
    }
    before = {name: getattr(torch.cuda, name) for name in answers if hasattr(torch.cuda, name)}
    for name in before:
        setattr(torch.cuda, name, answers[name])
    try:
        yield
    finally:
        for name, one in before.items():
            setattr(torch.cuda, name, one)
