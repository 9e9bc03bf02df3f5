"""Launch one empty kernel through the driver alone; run in a process of its own, under ncu too.

Needs neither torch nor a CUDA toolkit: the kernel is PTX, which the driver compiles. Prints one
JSON object with the GPU's `name`, `compute_capability`, `sm_count` and `l2_bytes`, or `error`;
the exit code is 0 only where the kernel ran.

    python cuda_probe.py
"""

from __future__ import annotations

import ctypes
import json
import sys

_PTX = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry kernel_compass_probe()
{
    ret;
}
"""
_ATTRIBUTES = {"sm_count": 16, "l2_bytes": 38, "major": 75, "minor": 76}
"""CUdevice_attribute numbers."""


class CudaError(Exception):
    """A call of the driver failed."""


def main() -> int:
    """Launch the kernel on the first GPU and print what it is."""
    try:
        facts = _launch(ctypes.CDLL("libcuda.so.1"))
    except (OSError, CudaError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _launch(cuda: ctypes.CDLL) -> dict[str, object]:
    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise CudaError(f"{name} failed with CUDA error {code}")

    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), _PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"kernel_compass_probe")
    size, none = [ctypes.c_uint(1)] * 6, ctypes.c_void_p()
    call("cuLaunchKernel", function, *size, ctypes.c_uint(0), none, none, none)
    call("cuCtxSynchronize")
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, 256, device)
    values = {}
    for key, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        values[key] = value.value
    capability = f"{values.pop('major')}.{values.pop('minor')}"
    return {"name": name.value.decode(), "compute_capability": capability, **values}


if __name__ == "__main__":
    sys.exit(main())
