"""Recipes on a real GPU."""

from __future__ import annotations

from kernel_compass.measurement.subject import Subject


def bmm(device, columns=512):
    """cuBLAS bf16 bmm of 128 heads, one token."""
    torch = device.torch
    a = torch.randn(128, 1, 128, device="cuda").to(torch.bfloat16)
    w = torch.randn(128, 128, columns, device="cuda").to(torch.bfloat16)
    return Subject(lambda w, a: torch.bmm(a, w), streamed=(w,), resident=(a,))


def half(device):
    """The same with half of the columns: faster in every regime."""
    return bmm(device, 256)
