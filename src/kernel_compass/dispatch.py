"""A dispatch table at run time: what studies accepted, used by a model.

    table = kernel_compass.dispatch.load("compass.json")
    handle = table.prepare(weight)          # [H, K, N], or a linear layer's [N, K]
    out = table.bmm(a, handle)              # or table.linear(x, handle)

Where no entry fits, or the machine is another, the product is torch's own, bit for bit;
`table.explain(handle, tokens)` says which one it is, and why.
"""

from __future__ import annotations

from kernel_compass.api.dispatch import Explanation, Handle, Table, bmm, explain, linear, load

__all__ = ["Explanation", "Handle", "Table", "bmm", "explain", "linear", "load"]
