"""Problems for trying the judge: every kind of output, each with its float64 reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from kernel_compass.records.problem import ProblemWorkload
from kernel_compass.validation.function_problem import FunctionProblem, ProblemFunctions

INF = float("inf")


@dataclass(frozen=True)
class Problem:
    """A problem with the sizes it is tried at."""

    inputs: object
    reference: object
    baseline: object
    sizes: tuple[dict, ...]
    held: frozenset[str] = frozenset()

    def judged(self, name: str, index: int) -> tuple[FunctionProblem, ProblemWorkload]:
        workloads = [
            ProblemWorkload(", ".join(f"{k} {v}" for k, v in one.items()), one)
            for one in self.sizes
        ]
        functions = ProblemFunctions(self.inputs, self.reference, self.baseline)
        made = FunctionProblem(torch, name, workloads, functions, held=self.held)
        return made, workloads[index % len(workloads)]


PROBLEMS: dict[str, Problem] = {}


def sizes(**lists):
    """The same number of values for each name: one workload a column."""
    names = list(lists)
    return tuple(dict(zip(names, row, strict=True)) for row in zip(*lists.values(), strict=True))


def problem(*, held=(), **lists):
    """Registers a class with `inputs`, `reference` and, where it is another, `baseline`."""

    def register(cls):
        PROBLEMS[cls.__name__] = Problem(
            cls.inputs,
            cls.reference,
            getattr(cls, "baseline", cls.reference),
            sizes(**lists),
            frozenset(held),
        )
        return cls

    return register


def normal(g, *shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(shape, generator=g) * scale).to(dtype)


# elementwise


@problem(m=(64, 1, 33), n=(96, 200, 7))
class relu_add:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["n"], dtype=torch.bfloat16),
            "b": normal(g, w["n"], dtype=torch.bfloat16),
        }

    def reference(x, b):
        return torch.relu(x + b)


@problem(m=(40, 1, 129), n=(64, 33, 5))
class gelu:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], scale=2.0)}

    def reference(x):
        return F.gelu(x)


@problem(m=(32, 1, 17), n=(128, 64, 30))
class swiglu:
    def inputs(w, g):
        return {"x": normal(g, w["m"], 2 * w["n"], dtype=torch.float16)}

    def reference(x):
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up


@problem(m=(24, 1, 50), n=(70, 16, 3))
class with_nan_and_inf:
    def inputs(w, g):
        x = normal(g, w["m"], w["n"])
        x[0, 0], x[-1, -1], x[0, 1] = float("nan"), INF, -INF
        return {"x": x}

    def reference(x):
        return x * 2.0 + 1.0


@problem(m=(48, 0, 5), n=(32, 16, 1))
class sometimes_empty:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"])}

    def reference(x):
        return torch.tanh(x)


@problem(m=(30, 1, 64), n=(50, 8, 65))
class broadcast_scale:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["n"]).t(),
            "s": normal(g, 1, w["m"]).expand(w["n"], w["m"]),
        }

    def reference(x, s):
        return x * s


@problem(m=(33, 1, 64), n=(50, 8, 64))
class threshold:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"]), "y": normal(g, w["m"], w["n"])}

    def reference(x, y):
        return x > y


@problem(m=(33, 2, 64), n=(50, 8, 64))
class transposed:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"])}

    def reference(x):
        return x.transpose(0, 1)


# reductions and norms


@problem(m=(37, 1, 300), n=(1000, 4096, 19))
class row_sum:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"])}

    def reference(x):
        return x.sum(-1)


@problem(m=(20, 3, 64), n=(120, 64, 33))
class mean_and_variance:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"]) + 3.0}

    def reference(x):
        return x.mean(-1), x.var(-1, unbiased=False)


@problem(m=(33, 1, 64), n=(256, 768, 40))
class layer_norm:
    def inputs(w, g):
        n = w["n"]
        return {
            "x": normal(g, w["m"], n, dtype=torch.bfloat16) + 0.5,
            "gain": normal(g, n, dtype=torch.bfloat16) * 0.1 + 1.0,
            "shift": normal(g, n, dtype=torch.bfloat16),
        }

    def reference(x, gain, shift):
        return F.layer_norm(x, (x.shape[-1],), gain, shift, 1e-5)


@problem(m=(33, 1, 64), n=(256, 768, 40))
class rms_norm:
    def inputs(w, g):
        x = normal(g, w["m"], w["n"], dtype=torch.float16)
        return {"x": x * 0.05, "gain": normal(g, w["n"], dtype=torch.float16)}

    def reference(x, gain):
        wide = x if x.dtype == torch.float64 else x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-3)
        return scaled.to(x.dtype) * gain


@problem(m=(6, 1, 4), n=(8, 16, 4), k=(33, 10, 100))
class group_norm:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], w["k"])}

    def reference(x):
        return F.group_norm(x, 4)


@problem(m=(65, 1, 20), n=(100, 1000, 7))
class softmax:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], scale=30.0)}

    def reference(x):
        return torch.softmax(x, -1)


@problem(m=(40, 1, 64), n=(64, 100, 9))
class masked_softmax:
    def inputs(w, g):
        mask = torch.zeros(w["m"], w["n"])
        mask[torch.rand(mask.shape, generator=g) < 0.4] = -INF
        mask[:, 0] = 0.0
        return {"x": normal(g, w["m"], w["n"], dtype=torch.bfloat16), "mask": mask.bfloat16()}

    def reference(x, mask):
        return torch.softmax(x + mask, -1)


@problem(m=(50, 1, 128), n=(400, 1000, 33))
class cross_entropy:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["n"], scale=3.0),
            "target": torch.randint(0, w["n"], (w["m"],), generator=g),
        }

    def reference(x, target):
        return F.cross_entropy(x, target)


@problem(m=(50, 1, 100), n=(70, 300, 33))
class log_sum_exp:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], scale=40.0)}

    def reference(x):
        return torch.logsumexp(x, -1)


# products


@problem(b=(2, 1, 2), h=(3, 2, 4), m=(40, 1, 17), d=(32, 16, 8))
class causal_attention:
    def inputs(w, g):
        shape = (w["b"], w["h"], w["m"], w["d"])
        return {name: normal(g, *shape, dtype=torch.bfloat16) for name in "qkv"}

    def reference(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@problem(b=(2, 1, 1), h=(6, 4, 2), m=(1, 7, 30), n=(70, 33, 30), d=(32, 16, 24))
class grouped_attention:
    def inputs(w, g):
        h, d = w["h"], w["d"]
        return {
            "q": normal(g, w["b"], h, w["m"], d),
            "k": normal(g, w["b"], h // 2, w["n"], d),
            "v": normal(g, w["b"], h // 2, w["n"], d),
        }

    def reference(q, k, v):
        k, v = (t.repeat_interleave(2, 1) for t in (k, v))
        return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


@problem(m=(33, 1, 64), n=(48, 65, 16), k=(64, 100, 30), held=("w",))
class linear:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["k"]),
            "w": normal(g, w["n"], w["k"], scale=0.1),
            "b": normal(g, w["n"]),
        }

    def reference(x, w, b):
        return F.gelu(F.linear(x, w, b))


@problem(m=(33, 1, 128), n=(48, 65, 16), k=(512, 1000, 96))
class long_product:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["k"], dtype=torch.bfloat16),
            "w": normal(g, w["k"], w["n"], dtype=torch.bfloat16),
        }

    def reference(x, w):
        return x @ w


@problem(h=(4, 16, 1), m=(16, 1, 33), k=(64, 128, 48), n=(64, 40, 50))
class batched:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["h"], w["k"], dtype=torch.float16).transpose(0, 1),
            "w": normal(g, w["h"], w["k"], w["n"], dtype=torch.float16, scale=0.1),
        }

    def reference(x, w):
        return torch.bmm(x, w)


@problem(m=(20, 1, 33), n=(30, 17, 40), k=(50, 64, 300))
class product_f64:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["k"]).double(), "w": normal(g, w["k"], w["n"]).double()}

    def reference(x, w):
        return x @ w


@problem(m=(20, 1, 33), n=(30, 17, 40), k=(50, 64, 300))
class product_int8:
    def inputs(w, g):
        return {
            "x": torch.randint(-127, 128, (w["m"], w["k"]), generator=g, dtype=torch.int8),
            "w": torch.randint(-127, 128, (w["k"], w["n"]), generator=g, dtype=torch.int8),
        }

    def reference(x, w):
        return x.int() @ w.int()


@problem(b=(2, 1, 3), c=(3, 8, 1), o=(4, 5, 7), s=(12, 9, 16))
class conv2d:
    def inputs(w, g):
        return {
            "x": normal(g, w["b"], w["c"], w["s"], w["s"]),
            "w": normal(g, w["o"], w["c"], 3, 3, scale=0.3),
        }

    def reference(x, w):
        return F.conv2d(x, w, padding=1)


@problem(b=(2, 1, 3), c=(16, 8, 1), s=(64, 33, 10))
class depthwise_conv1d:
    def inputs(w, g):
        return {"x": normal(g, w["b"], w["c"], w["s"]), "w": normal(g, w["c"], 4)}

    def reference(x, w):
        return F.conv1d(F.pad(x, (3, 0)), w[:, None], groups=x.shape[1])


@problem(b=(2, 1, 3), c=(3, 8, 2), s=(16, 10, 12))
class max_pool:
    def inputs(w, g):
        return {"x": normal(g, w["b"], w["c"], w["s"], w["s"], dtype=torch.bfloat16)}

    def reference(x):
        return F.max_pool2d(x, 2)


# whole numbers, orders, scans


@problem(m=(40, 1, 200), n=(32, 64, 8), v=(100, 1000, 30))
class embedding:
    def inputs(w, g):
        return {
            "index": torch.randint(0, w["v"], (w["m"],), generator=g),
            "table": normal(g, w["v"], w["n"], dtype=torch.bfloat16),
        }

    def reference(index, table):
        return F.embedding(index, table)


@problem(m=(40, 8, 100), n=(32, 64, 8), v=(20, 10, 30))
class scatter_sum:
    def inputs(w, g):
        return {
            "index": torch.randint(0, w["v"], (w["m"],), generator=g),
            "x": normal(g, w["m"], w["n"]),
            "out": torch.zeros(w["v"], w["n"]),
        }

    def reference(index, x, out):
        return out.index_add(0, index, x)


@problem(m=(20, 1, 64), n=(300, 1000, 33))
class cumsum:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"])}

    def reference(x):
        return x.cumsum(-1)


@problem(b=(3, 2, 8), t=(64, 1, 100), n=(16, 8, 32))
class recurrence:
    def inputs(w, g):
        shape = (w["b"], w["t"], w["n"])
        return {"a": torch.sigmoid(normal(g, *shape)), "x": normal(g, *shape)}

    def reference(a, x):
        h, out = torch.zeros_like(x[:, 0]), []
        for step in range(x.shape[1]):
            h = a[:, step] * h + x[:, step]
            out.append(h)
        return torch.stack(out, 1)


@problem(m=(40, 1, 100), n=(256, 1000, 64))
class topk_bf16:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], dtype=torch.bfloat16)}

    def reference(x):
        values, index = torch.topk(x, 4, -1)
        return values, index


@problem(m=(40, 1, 100), n=(256, 1000, 64), k=(32, 16, 64))
class best_match:
    def inputs(w, g):
        return {
            "x": normal(g, w["m"], w["k"], dtype=torch.bfloat16),
            "w": normal(g, w["k"], w["n"], dtype=torch.bfloat16),
        }

    def reference(x, w):
        return (x @ w).argmax(-1)


@problem(m=(33, 2, 128), n=(64, 256, 20))
class quantize_rows:
    def inputs(w, g):
        return {"x": normal(g, w["m"], w["n"], dtype=torch.bfloat16)}

    def reference(x):
        wide = x if x.dtype == torch.float64 else x.float()
        scale = wide.abs().amax(-1, keepdim=True) / 127.0
        return torch.round(wide / scale).to(torch.int8), scale

    def baseline(x):
        scale = x.float().abs().amax(-1, keepdim=True) / 127.0
        return torch.round(x.float() / scale).to(torch.int8), scale


@problem(m=(500, 30, 2000), v=(20, 7, 64))
class histogram:
    def inputs(w, g):
        return {"x": torch.randint(0, w["v"], (w["m"],), generator=g), "size": w["v"]}

    def reference(x, size):
        return torch.bincount(x, minlength=size)


@problem(m=(20, 1, 33), h=(4, 2, 8), d=(32, 16, 64))
class rotary:
    def inputs(w, g):
        angle = torch.rand(w["m"], w["d"] // 2, generator=g) * 6.28
        return {
            "q": normal(g, w["m"], w["h"], w["d"], dtype=torch.bfloat16),
            "k": normal(g, w["m"], 1, w["d"], dtype=torch.bfloat16),
            "cos": angle.cos(),
            "sin": angle.sin(),
        }

    def reference(q, k, cos, sin):
        def turned(x):
            a, b = x.chunk(2, -1)
            c, s = cos[:, None], sin[:, None]
            return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

        return {"q": turned(q), "k": turned(k)}
