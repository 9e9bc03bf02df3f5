"""The few calls of the CUDA driver that torch has no door to."""

from __future__ import annotations

import ctypes
from typing import Any

_CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 0x06
_NON_BLOCKING = 1
_RELAXED = 2


def driver() -> ctypes.CDLL | None:
    """The driver's library; `None` without one."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def persisting_limit() -> int:
    """Bytes of L2 that the current context may set aside for persisting accesses."""
    size, library = ctypes.c_size_t(), driver()
    if library is None:
        return 0
    code = library.cuCtxGetLimit(ctypes.byref(size), _CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
    return int(size.value) if code == 0 else 0


def is_capturing(stream: Any, library: ctypes.CDLL) -> bool:
    """Whether work on a stream goes into a graph."""
    status = ctypes.c_int()
    library.cuStreamIsCapturing(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(status))
    return status.value != 0


def begin_capture(stream: Any, library: ctypes.CDLL) -> bool:
    """Have work on a stream go into a graph; whether that could be."""
    handle = ctypes.c_void_p(stream.cuda_stream)
    return bool(library.cuStreamBeginCapture_v2(handle, ctypes.c_int(_RELAXED)) == 0)


def end_capture(stream: Any, library: ctypes.CDLL) -> int:
    """End a capture and count what it caught; a capture that broke caught something."""
    graph, nodes = ctypes.c_void_p(), ctypes.c_size_t()
    if library.cuStreamEndCapture(ctypes.c_void_p(stream.cuda_stream), ctypes.byref(graph)) != 0:
        return 1
    library.cuGraphGetNodes(graph, None, ctypes.byref(nodes))
    library.cuGraphDestroy(graph)
    return int(nodes.value)


def new_stream(library: ctypes.CDLL) -> int | None:
    """A non-blocking stream that no pool of torch's hands out."""
    handle = ctypes.c_void_p()
    library.cuStreamCreate(ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING))
    return handle.value
