"""Honest kernels: each computes its problem another way, keeps and allocates as real ones do."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from kernel_compass.validation.cheat_parts import FunctionRunner


@dataclass(frozen=True)
class Honest:
    """A kernel: `make` gives a runner, anew for every run."""

    name: str
    problem: str
    make: Callable[[], Any]


KERNELS: list[Honest] = []


def kernel(problem):
    """A function of the problem's inputs."""

    def register(function):
        KERNELS.append(Honest(function.__name__, problem, lambda: FunctionRunner(function)))
        return function

    return register


def built(problem):
    """A function that makes one, with state of its own."""

    def register(make):
        KERNELS.append(Honest(make.__name__, problem, lambda: FunctionRunner(make())))
        return make

    return register


@kernel("relu_add")
def relu_by_where(x, b):
    y = x.float() + b.float()
    return torch.where(y > 0, y, torch.zeros_like(y)).to(x.dtype)


@kernel("relu_add")
def relu_rows_into_empty(x, b):
    out = torch.empty_like(x)
    for row in range(x.shape[0]):
        out[row] = (x[row] + b).clamp_min(0)
    return out


@kernel("gelu")
def gelu_by_erf(x):
    return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))


@kernel("gelu")
def gelu_by_blocks(x):
    flat, out = x.reshape(-1), torch.empty(x.numel())
    for start in range(0, flat.numel(), 64):
        part = flat[start : start + 64]
        out[start : start + 64] = part * torch.special.ndtr(part)
    return out.reshape(x.shape)


@kernel("swiglu")
def swiglu_wide(x):
    n = x.shape[-1] // 2
    gate, up = x[..., :n].float(), x[..., n:].float()
    return (gate / (1 + torch.exp(-gate)) * up).half()


@kernel("with_nan_and_inf")
def propagates(x):
    return torch.addcmul(torch.ones_like(x), x, torch.full_like(x, 2.0))


@kernel("sometimes_empty")
def tanh_by_exp(x):
    e = torch.exp(-2.0 * x.abs())
    return torch.sign(x) * (1.0 - e) / (1.0 + e)


@kernel("broadcast_scale")
def scaled_columns(x, s):
    return torch.einsum("nm,m->nm", x, s[0])


@kernel("broadcast_scale")
def scaled_contiguous(x, s):
    return x.clone(memory_format=torch.contiguous_format).mul_(s)


@kernel("threshold")
def by_difference(x, y):
    return (x - y).sign() == 1


@kernel("transposed")
def permuted_view(x):
    return x.permute(1, 0)


@kernel("transposed")
def transposed_copy(x):
    return torch.einsum("mn->nm", x).contiguous()


@kernel("row_sum")
def sum_by_blocks(x):
    total = torch.zeros(x.shape[0])
    for start in range(0, x.shape[1], 128):
        total += x[:, start : start + 128].sum(1)
    return total


@kernel("row_sum")
def sum_by_product(x):
    return torch.mv(x, torch.ones(x.shape[1]))


@kernel("mean_and_variance")
def welford(x):
    mean = torch.zeros(x.shape[0])
    square = torch.zeros(x.shape[0])
    for count in range(x.shape[1]):
        delta = x[:, count] - mean
        mean += delta / (count + 1)
        square += delta * (x[:, count] - mean)
    return mean, square / x.shape[1]


@kernel("mean_and_variance")
def moments_about_the_first(x):
    first = x[..., :1]
    off = x - first
    mean = off.mean(-1)
    return [first[..., 0] + mean, (off * off).mean(-1) - mean * mean]


@kernel("mean_and_variance")
def moments_by_welford(x):
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for count, value in enumerate(x.unbind(-1), 1):
        off = value - mean
        mean = mean + off / count
        squares = squares + off * (value - mean)
    return [mean, squares / x.shape[-1]]


@kernel("layer_norm")
def norm_in_one_pass(x, gain, shift):
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    return ((wide - mean) * torch.rsqrt(variance + 1e-5) * gain + shift).bfloat16()


@built("layer_norm")
def compiled_norm():
    def body(x, gain, shift):
        wide = x.float()
        centred = wide - wide.mean(-1, keepdim=True)
        scaled = centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return (scaled * gain.float() + shift.float()).to(x.dtype)

    return torch.compile(body, backend="eager", dynamic=True)


@kernel("rms_norm")
def rms_by_norm(x, gain):
    wide = x.float()
    size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True) / math.sqrt(x.shape[-1])
    return (wide / torch.sqrt(size * size + 1e-3)).half() * gain


@built("rms_norm")
def rms_with_workspace():
    """Keeps scratch memory between calls, as kernels with split reductions do."""
    kept = {}

    def function(x, gain):
        m, n = x.shape
        work = kept.setdefault((m, n), torch.empty(m, 4))
        for part, columns in enumerate(x.float().chunk(4, -1)):
            work[:, part] = columns.square().sum(-1)
        scale = torch.rsqrt(work[:, : part + 1].sum(-1, keepdim=True) / n + 1e-3)
        return (x.float() * scale * gain.float()).half()

    return function


@kernel("group_norm")
def group_norm_by_view(x):
    groups = x.reshape(x.shape[0], 4, -1)
    variance, mean = torch.var_mean(groups, -1, unbiased=False, keepdim=True)
    return ((groups - mean) * torch.rsqrt(variance + 1e-5)).view_as(x)


@kernel("softmax")
def online_softmax(x):
    top = torch.full((x.shape[0], 1), -float("inf"))
    total = torch.zeros(x.shape[0], 1)
    for part in x.split(32, -1):
        new = torch.maximum(top, part.amax(-1, keepdim=True))
        total = total * torch.exp(top - new) + torch.exp(part - new).sum(-1, keepdim=True)
        top = new
    return torch.exp(x - top) / total


@kernel("softmax")
def softmax_base_two(x):
    y = x * 1.4426950408889634
    e = torch.exp2(y - y.amax(-1, keepdim=True))
    return e * (1.0 / e.sum(-1, keepdim=True))


@kernel("masked_softmax")
def masked_by_zero(x, mask):
    y = x.float() + mask.float()
    e = torch.where(mask == 0, torch.exp(y - y.amax(-1, keepdim=True)), 0.0)
    return (e / e.sum(-1, keepdim=True)).bfloat16()


@kernel("cross_entropy")
def loss_by_gather(x, target):
    picked = x.gather(1, target[:, None])[:, 0]
    return (torch.logsumexp(x, -1) - picked).mean()


@kernel("log_sum_exp")
def shifted_log(x):
    top = x.amax(-1)
    return top + torch.log(torch.exp(x - top[:, None]).sum(-1))


@kernel("causal_attention")
def flash(q, k, v):
    """Tiles of keys, a running maximum, probabilities rounded as tensor cores need them."""
    m, d = q.shape[-2:]
    rows = torch.arange(m)[:, None]
    top = torch.full((*q.shape[:-1], 1), -float("inf"))
    total, out = torch.zeros_like(top), torch.zeros(q.shape)
    for start in range(0, m, 16):
        keys, values = k[..., start : start + 16, :].float(), v[..., start : start + 16, :]
        score = q.float() @ keys.transpose(-1, -2) / math.sqrt(d)
        hidden = rows < torch.arange(start, min(start + 16, m))[None]
        score = score.masked_fill(hidden, -float("inf"))
        new = torch.maximum(top, score.amax(-1, keepdim=True))
        p, shrink = torch.exp(score - new), torch.exp(top - new)
        total = total * shrink + p.sum(-1, keepdim=True)
        out = out * shrink + p.bfloat16().float() @ values.float()
        top = new
    return (out / total).bfloat16()


@kernel("causal_attention")
def plain_attention(q, k, v):
    m = q.shape[-2]
    score = torch.einsum("bhmd,bhnd->bhmn", q.float(), k.float()) / math.sqrt(q.shape[-1])
    score = score + torch.full((m, m), -float("inf")).triu(1)
    return torch.einsum("bhmn,bhnd->bhmd", score.softmax(-1), v.float()).bfloat16()


@kernel("grouped_attention")
def grouped_without_copies(q, k, v):
    b, h, m, d = q.shape
    grouped = q.reshape(b, h // 2, 2 * m, d)
    p = torch.softmax(grouped @ k.transpose(-1, -2) * d**-0.5, -1)
    return (p @ v).reshape(b, h, m, d)


class PackedLinear:
    """Packs the weight once, as `prepare` is for."""

    def prepare(self, held):
        return held["w"].t().contiguous()

    def run(self, state, given):
        y = torch.addmm(given["b"], given["x"], state)
        return 0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0)))


KERNELS.append(Honest("packed_linear", "linear", PackedLinear))


@kernel("linear")
def linear_swapped(x, w, b):
    return F.gelu((w @ x.t()).t() + b).contiguous()


@kernel("long_product")
def split_k(x, w):
    total = torch.zeros(x.shape[0], w.shape[1])
    for part in range(4):
        total += x[:, part::4].float() @ w[part::4].float()
    return total.bfloat16()


@built("long_product")
def in_any_order():
    """Partial sums in another order at each call, as atomics leave them."""
    generator = torch.Generator().manual_seed(1)

    def function(x, w):
        parts = list(zip(x.float().chunk(8, 1), w.float().chunk(8, 0), strict=True))
        total = torch.zeros(x.shape[0], w.shape[1])
        for one in torch.randperm(len(parts), generator=generator).tolist():
            total += parts[one][0] @ parts[one][1]
        return total.bfloat16()

    return function


@built("batched")
def tuned_by_timing():
    """Chooses a configuration at the first call of a shape, and keeps the choice."""
    ways = [
        lambda x, w: torch.einsum("hmk,hkn->hmn", x.float(), w.float()),
        lambda x, w: torch.stack([a.float() @ b.float() for a, b in zip(x, w, strict=True)]),
    ]
    chosen = {}

    def timed(way, x, w):
        start = time.perf_counter()
        way(x, w)
        return time.perf_counter() - start

    def function(x, w):
        if x.shape not in chosen:
            chosen[x.shape] = min(ways, key=lambda way: timed(way, x, w))
        return chosen[x.shape](x, w).half()

    return function


@kernel("batched")
def batched_scratch(x, w):
    out = torch.empty(x.shape[0], x.shape[1], w.shape[2])
    scratch = torch.empty(x.shape[1], w.shape[2])
    for head in range(x.shape[0]):
        torch.mm(x[head].float(), w[head].float(), out=scratch)
        out[head] = scratch
    return out.half()


@kernel("product_f64")
def outer_products(x, w):
    total = torch.zeros(x.shape[0], w.shape[1], dtype=x.dtype)
    for k in range(x.shape[1]):
        total.addr_(x[:, k], w[k])
    return total


@kernel("product_int8")
def by_floats(x, w):
    return (x.double() @ w.double()).round().int()


@kernel("conv2d")
def conv_by_unfolding(x, w):
    b, _, rows, columns = x.shape
    patches = F.unfold(x, 3, padding=1)
    return (w.flatten(1) @ patches).reshape(b, -1, rows, columns)


@kernel("depthwise_conv1d")
def conv_by_shifts(x, w):
    padded, n = F.pad(x, (3, 0)), x.shape[-1]
    return sum(padded[..., i : i + n] * w[:, i, None] for i in range(4))


@kernel("max_pool")
def pool_by_views(x):
    a = torch.maximum(x[..., ::2, :], x[..., 1::2, :])
    return torch.maximum(a[..., ::2], a[..., 1::2])


@kernel("embedding")
def gathered(index, table):
    return table.gather(0, index[:, None].expand(-1, table.shape[1]))


@kernel("embedding")
def one_hot_product(index, table):
    hot = F.one_hot(index, table.shape[0]).float()
    return (hot @ table.float()).bfloat16()


@built("scatter_sum")
def like_atomics():
    generator = torch.Generator().manual_seed(2)

    def function(index, x, out):
        order = torch.randperm(len(index), generator=generator)
        return out.clone().index_add_(0, index[order], x[order])

    return function


@kernel("cumsum")
def blocked_scan(x):
    out, carry = torch.empty_like(x), torch.zeros(x.shape[0], 1)
    for start in range(0, x.shape[1], 64):
        part = x[:, start : start + 64]
        ones = torch.ones(part.shape[1], part.shape[1]).triu()
        out[:, start : start + 64] = part @ ones + carry
        carry = out[:, min(start + 64, x.shape[1]) - 1, None].clone()
    return out


@kernel("recurrence")
def doubling_scan(a, x):
    """Associative: pairs (a, x) combine in log2 steps."""
    a, x, step = a.clone(), x.clone(), 1
    while step < x.shape[1]:
        joined = x[:, step:] + a[:, step:] * x[:, :-step]
        a = torch.cat([a[:, :step], a[:, step:] * a[:, :-step]], 1)
        x = torch.cat([x[:, :step], joined], 1)
        step *= 2
    return x


@kernel("topk_bf16")
def topk_by_sorting(x):
    values, index = x.float().sort(dim=-1, descending=True, stable=True)
    return values[:, :4].bfloat16(), index[:, :4]


@kernel("topk_bf16")
def topk_last_of_ties(x):
    values, index = x.flip(-1).float().sort(dim=-1, descending=True, stable=True)
    return values[:, :4].bfloat16(), x.shape[-1] - 1 - index[:, :4]


@kernel("best_match")
def match_in_float(x, w):
    return torch.einsum("mk,kn->mn", x.float(), w.float()).max(-1).indices


@kernel("best_match")
def match_by_vmap(x, w):
    return torch.vmap(lambda row: (row.float() @ w.float()).argmax())(x)


@kernel("quantize_rows")
def by_inverse_scale(x):
    top = x.abs().amax(-1, keepdim=True).float()
    return torch.round(x.float() * (127.0 / top)).clamp(-127, 127).to(torch.int8), top / 127.0


@kernel("histogram")
def counted_by_sorting(x, size):
    edges = torch.searchsorted(x.sort().values, torch.arange(size + 1))
    return edges.diff()


@kernel("rotary")
def rotary_by_halves(q, k, cos, sin):
    def turned(x):
        out, half = torch.empty_like(x), x.shape[-1] // 2
        a, b = x[..., :half].float(), x[..., half:].float()
        out[..., :half] = torch.addcmul(a * cos[:, None], b, sin[:, None], value=-1)
        out[..., half:] = torch.addcmul(b * cos[:, None], a, sin[:, None])
        return out

    return turned(q), turned(k)
