"""A problem whose candidates launch autotuned kernels: the text of its file."""

TUNED = """
import torch
import triton
import triton.language as tl

WORKLOADS = [{"rows": 3, "width": 40}, {"rows": 1, "width": 7}]
ERROR_BUDGET = 0.01
HOOKS = []
ASKED = []


def inputs(workload, generator):
    rows, width = workload["rows"], workload["width"]
    draw = lambda *s: torch.randn(s, generator=generator, device=generator.device)
    return {"x": draw(rows, width), "y": draw(rows, width)}


def reference(x, y):
    return x * 2 + y


def baseline(x, y):
    return x * 2 + y


def hook(args):
    HOOKS.append(args["BLOCK"])


def early(configs, named_args, **kwargs):
    ASKED.append(len(configs))
    return [c for c in configs if c.kwargs["BLOCK"] < 64 or named_args["total"] > 64]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 16}, num_warps=1, num_stages=1),
        triton.Config({"BLOCK": 32}, num_warps=2, pre_hook=hook),
        triton.Config({"BLOCK": 64}, num_warps=8, maxnreg=64),
        triton.Config({"BLOCK": 16}, num_warps=1, num_stages=1),
    ],
    key=["total"],
    prune_configs_by={"early_config_prune": early},
)
@triton.heuristics({"EVEN": lambda args: args["total"] % args["BLOCK"] == 0})
@triton.jit
def twice_and(x, y, out, total, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    tl.store(out + place, tl.load(x + place, inside) * 2 + tl.load(y + place, inside), inside)


@triton.jit
def plain(x, y, out, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < total
    tl.store(out + place, tl.load(x + place, inside) * 2 + tl.load(y + place, inside), inside)


def launched(x, y):
    out = torch.empty_like(x)
    twice_and[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out


def tuned(x, y):
    return launched(x, y)


def in_parts(x, y, parts):
    return torch.cat([launched(a, b) for a, b in zip(x.chunk(parts), y.chunk(parts))])


def by_parameters(x, y, BLOCK=32, num_warps=4):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    plain[grid](x, y, out, x.numel(), BLOCK=BLOCK, num_warps=num_warps)
    return out


def of_torch(x, y, BLOCK=32):
    return x * 2 + y


PRE = "twice_and."
CANDIDATES = {
    "tuned": tuned,
    "in_parts": (in_parts, [{"parts": 1}, {"parts": 2}]),
    "named": (tuned, [{PRE + "BLOCK": 32, PRE + "num_warps": 2, PRE + "num_stages": 3}]),
    "by_parameters": by_parameters,
    "of_torch": of_torch,
}
"""
