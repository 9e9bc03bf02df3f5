"""Mutants: ten honest kernels written with their mistakes in them, one switched on at a time.

A kernel asks `bug(name)` where a mistake could be; each name is a mutant. So every mutant is the
honest kernel in all but one place, and a name that is never asked cannot be run by accident.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernel_compass.validation.cheat_parts import FunctionRunner

INF = float("inf")


@dataclass(frozen=True)
class Subject:
    """A kernel with places for mistakes."""

    name: str
    problem: str
    function: Callable
    bugs: tuple[str, ...]

    def make(self, bug: str | None):
        """The runner of one mutant; `None` = the honest kernel."""

        def function(**given):
            return self.function(lambda name: name == bug, **given)

        return lambda: FunctionRunner(function)


SUBJECTS: list[Subject] = []

ROUNDINGS = ("output rounded to 2 bits fewer", "output rounded to e4m3", "output cut toward zero")
COMMON = (
    *ROUNDINGS,
    "output lost 1 %",
    "output lost 0.4 %",
    "sign of the output",
    "last row zero",
    "last column zero",
    "last row unwritten",
    "first row repeated",
    "tail of 16 columns stale",
    "one element off",
    "clamped at half the largest",
    "NaN in one place",
    "wrong for one row only",
    "rows reversed",
)


def subject(problem, *bugs):
    """Registers a kernel with mistakes of its own; the common ones are made on its result."""

    def register(function):
        def whole(bug, **given):
            return _spoiled(bug, function(bug, **given))

        SUBJECTS.append(Subject(function.__name__, problem, whole, (*bugs, *COMMON)))
        return function

    return register


def _fewer_bits(y, bits):
    mantissa, exponent = torch.frexp(y.double())
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent).to(y.dtype)


def _spoiled(bug, y):
    kept = {torch.float32: 10, torch.bfloat16: 6, torch.float16: 9}[y.dtype]
    if bug("output rounded to 2 bits fewer"):
        return _fewer_bits(y, kept - 1)
    if bug("output rounded to e4m3"):
        return _fewer_bits(y, 4)
    if bug("output cut toward zero"):
        mantissa, exponent = torch.frexp(y.double())
        return torch.ldexp(torch.trunc(mantissa * 2.0**kept) / 2.0**kept, exponent).to(y.dtype)
    if bug("output lost 1 %"):
        return (y.float() * 0.99).to(y.dtype)
    if bug("output lost 0.4 %"):
        return (y.float() * 0.996).to(y.dtype)
    if bug("sign of the output"):
        return -y
    if bug("last row zero"):
        y = y.clone()
        y[..., -1, :] = 0
    if bug("last column zero"):
        y = y.clone()
        y[..., -1] = 0
    if bug("last row unwritten"):
        out = torch.empty_like(y)
        out[..., :-1, :] = y[..., :-1, :]
        return out
    if bug("first row repeated") and y.shape[-2] > 1:
        y = y.clone()
        y[..., 1, :] = y[..., 0, :]
    if bug("tail of 16 columns stale"):
        out, whole = torch.empty_like(y), y.shape[-1] // 16 * 16
        whole -= 16 * (whole == y.shape[-1])
        out[..., :whole] = y[..., :whole]
        return out
    if bug("one element off"):
        y = y.clone()
        y.view(-1)[y.numel() // 2] += y.float().std().to(y.dtype)
    if bug("clamped at half the largest"):
        return y.clamp(-y.abs().max() / 2, y.abs().max() / 2)
    if bug("NaN in one place"):
        y = y.clone()
        y.view(-1)[-1] = float("nan")
    if bug("wrong for one row only"):
        return y * 1.01 if y.shape[-2] == 1 else y
    if bug("rows reversed"):
        return y.flip(-2)
    return y


@subject(
    "long_product",
    "last block of k skipped",
    "first block of k twice",
    "one element of k missed",
    "k off by one in x",
    "accumulator not cleared",
    "accumulates in bf16",
    "w transposed blocks",
    "columns swapped",
    "x row stride off by one",
    "rounds x to e4m3",
    "rounds w to e4m3",
    "rounds w to int4",
    "partial sums in bf16",
    "block of columns repeated",
    "last row of blocks",
)
def product(bug, x, w):
    m, k = x.shape
    n = w.shape[1]
    tile = torch.bfloat16 if bug("accumulates in bf16") else torch.float32
    total = torch.empty(m, n) if bug("accumulator not cleared") else torch.zeros(m, n, dtype=tile)
    if bug("x row stride off by one"):
        x = x.reshape(-1)[: m * (k - 1)].view(m, k - 1) if m > 1 else x
        x = torch.cat([x, torch.zeros(m, k - x.shape[1], dtype=x.dtype)], 1)
    if bug("rounds x to e4m3"):
        x = _fewer_bits(x, 4)
    if bug("rounds w to e4m3"):
        w = _fewer_bits(w, 4)
    if bug("rounds w to int4"):
        scale = w.abs().amax(0) / 7
        w = (w / scale).round() * scale
    starts = list(range(0, k, 32))
    if bug("last block of k skipped"):
        starts = starts[:-1]
    if bug("first block of k twice"):
        starts = [0, *starts]
    for start in starts:
        left, right = x[:, start : start + 32], w[start : start + 32]
        if bug("one element of k missed") and start == starts[-1]:
            left, right = left[:, :-1], right[:-1]
        if bug("k off by one in x"):
            left = torch.roll(x, 1, 1)[:, start : start + 32]
        if bug("w transposed blocks") and right.shape[0] == 32 and n >= 32:
            right = torch.cat([right[:, :32].t(), right[:, 32:]], 1)
        part = left.float() @ right.float()
        if bug("partial sums in bf16"):
            part = _fewer_bits(part, 6)
        total = (total + part.to(tile)).to(tile)
    if bug("columns swapped") and n > 1:
        total = total[:, [1, 0, *range(2, n)]]
    if bug("block of columns repeated") and n >= 16:
        total[:, 8:16] = total[:, :8]
    if bug("last row of blocks"):
        total[m // 16 * 16 :] = 0
    return total.bfloat16()


@subject(
    "batched",
    "last head missing",
    "first head for all",
    "heads in reverse",
    "head of w off by one",
    "last block of k skipped",
    "k off by one",
    "accumulates in fp16",
    "scale of one head lost 0.4 %",
    "scale of one head lost 1 %",
    "rounds w to e4m3",
    "heads and rows mixed",
    "beyond row 16 zero",
    "wrong stride of heads",
    "partial sums in fp16",
    "row 0 of another head",
)
def heads(bug, x, w):
    h, m, k = x.shape
    out = torch.empty(h, m, w.shape[2])
    for head in range(h):
        if bug("last head missing") and head == h - 1:
            out[head] = 0
            continue
        source = 0 if bug("first head for all") else head
        weight = w[(source + 1) % h] if bug("head of w off by one") else w[source]
        if bug("rounds w to e4m3"):
            weight = _fewer_bits(weight, 4)
        left = x[h - 1 - head] if bug("heads in reverse") else x[source]
        if bug("wrong stride of heads"):
            left = x.transpose(0, 1).reshape(h, m, k)[head]
        if bug("k off by one"):
            left = torch.roll(left, 1, -1)
        last = k - 16 if bug("last block of k skipped") else k
        if bug("accumulates in fp16") or bug("partial sums in fp16"):
            total = torch.zeros(m, w.shape[2], dtype=torch.float16)
            for one in range(0, last, 1 if bug("accumulates in fp16") else 16):
                step = 1 if bug("accumulates in fp16") else 16
                total += (
                    left[:, one : one + step].float() @ weight[one : one + step].float()
                ).half()
            out[head] = total
        else:
            out[head] = left[:, :last].float() @ weight[:last].float()
    if bug("scale of one head lost 0.4 %"):
        out[h // 2] *= 0.996
    if bug("scale of one head lost 1 %"):
        out[h // 2] *= 0.99
    if bug("heads and rows mixed"):
        out = out.transpose(0, 1).reshape(out.shape)
    if bug("beyond row 16 zero"):
        out[:, 16:] = 0
    if bug("row 0 of another head"):
        out[0, 0] = out[-1, 0]
    return out.half()


@subject(
    "causal_attention",
    "mask dropped",
    "diagonal masked too",
    "one key too many",
    "scale lost",
    "scale of d not its root",
    "scale lost 1 %",
    "no maximum subtracted from the sum",
    "last block of keys skipped",
    "sum not rescaled",
    "output not rescaled",
    "values of the next key",
    "last head missing",
    "heads swapped",
    "key and value swapped",
    "query and key swapped",
    "probabilities in e4m3",
    "scores in bf16",
    "batch 0 for all",
    "window of 16 keys",
    "not normalised",
)
def attention(bug, q, k, v):
    m, d = q.shape[-2:]
    if bug("key and value swapped"):
        k, v = v, k
    if bug("query and key swapped"):
        q, k = k, q
    if bug("values of the next key"):
        v = torch.roll(v, -1, -2)
    if bug("batch 0 for all"):
        k = k[:1].expand_as(k)
    if bug("heads swapped"):
        v = v.flip(1)
    scale = 1.0 if bug("scale lost") else 1 / d if bug("scale of d not its root") else d**-0.5
    scale *= 0.99 if bug("scale lost 1 %") else 1.0
    rows = torch.arange(m)[:, None]
    top = torch.full((*q.shape[:-1], 1), -1e30)
    total, out = torch.zeros_like(top), torch.zeros(q.shape)
    starts = list(range(0, m, 16))
    for start in starts[:-1] if bug("last block of keys skipped") and m > 16 else starts:
        columns = torch.arange(start, min(start + 16, m))[None]
        score = q.float() @ k[..., start : start + 16, :].float().transpose(-1, -2) * scale
        if bug("scores in bf16"):
            score = score.bfloat16().float()
        hidden = rows < columns
        if bug("diagonal masked too"):
            hidden = (rows <= columns) & (rows > 0)
        if bug("one key too many"):
            hidden = rows + 1 < columns
        if bug("window of 16 keys"):
            hidden = hidden | (rows - columns >= 16)
        if bug("mask dropped"):
            hidden = torch.zeros_like(hidden)
        score = score.masked_fill(hidden, -INF)
        new = torch.maximum(top, score.amax(-1, keepdim=True))
        p, shrink = torch.exp(score - new), torch.exp(top - new)
        total = total * (1.0 if bug("sum not rescaled") else shrink) + p.sum(-1, keepdim=True)
        if bug("no maximum subtracted from the sum"):
            total = total + (torch.exp(score) - p).nan_to_num(0.0).sum(-1, keepdim=True)
        if bug("probabilities in e4m3"):
            p = _fewer_bits(p, 4)
        out = out * (1.0 if bug("output not rescaled") else shrink)
        out = out + p @ v[..., start : start + 16, :].float()
        top = new
    out = out if bug("not normalised") else out / total
    if bug("last head missing"):
        out[:, -1] = 0
    return out.bfloat16()


@subject(
    "softmax",
    "no maximum subtracted",
    "wrong axis",
    "sum over all",
    "maximum over all",
    "sum misses the last",
    "maximum misses the last block",
    "half exponent",
    "natural for base two",
    "computed in bf16",
    "computed in fp16",
    "denominator plus 1e-2",
    "divided by the maximum",
    "first column twice",
)
def softmax(bug, x):
    if bug("computed in bf16"):
        x = x.bfloat16().float()
    if bug("computed in fp16"):
        x = x.half().float()
    axis = 0 if bug("wrong axis") else -1
    top = x.amax(axis, keepdim=True)
    if bug("maximum over all"):
        top = x.max()
    if bug("maximum misses the last block"):
        top = x[:, : max(1, x.shape[1] - 32)].amax(-1, keepdim=True)
    if bug("no maximum subtracted"):
        top = torch.zeros(())
    y = (x - top) * (0.5 if bug("half exponent") else 1.0)
    e = torch.exp2(y) if bug("natural for base two") else torch.exp(y)
    total = e.sum() if bug("sum over all") else e.sum(axis, keepdim=True)
    if bug("sum misses the last"):
        total = e[:, :-1].sum(-1, keepdim=True)
    if bug("first column twice"):
        total = total + e[:, :1]
    if bug("denominator plus 1e-2"):
        total = total + 1e-2
    if bug("divided by the maximum"):
        total = e.amax(-1, keepdim=True)
    return e / total


@subject(
    "layer_norm",
    "epsilon 1e-2",
    "epsilon 1e-3",
    "epsilon 1e-6",
    "no epsilon",
    "divides by n - 1",
    "no mean subtracted",
    "gain missing",
    "shift missing",
    "gain and shift swapped",
    "wrong axis",
    "mean of the first half",
    "variance about zero",
    "square root missing",
    "gain off by one",
    "statistics in bf16",
    "tail left out of the sums",
)
def layer_norm(bug, x, gain, shift):
    wide, n = x.float(), x.shape[-1]
    axis = 0 if bug("wrong axis") else -1
    if bug("mean of the first half"):
        mean = wide[:, : n // 2].mean(-1, keepdim=True)
    elif bug("tail left out of the sums"):
        mean = wide[:, : n // 32 * 32].sum(-1, keepdim=True) / n
    else:
        mean = wide.mean(axis, keepdim=True)
    if bug("statistics in bf16"):
        mean = mean.bfloat16().float()
    if bug("no mean subtracted"):
        mean = torch.zeros_like(mean)
    about = wide if bug("variance about zero") else wide - mean
    variance = about.square().sum(axis, keepdim=True) / wide.shape[axis]
    if bug("divides by n - 1"):
        variance = variance * n / (n - 1)
    if bug("statistics in bf16"):
        variance = variance.bfloat16().float()
    epsilon = 1e-2 if bug("epsilon 1e-2") else 1e-3 if bug("epsilon 1e-3") else 1e-5
    epsilon = 1e-6 if bug("epsilon 1e-6") else 0.0 if bug("no epsilon") else epsilon
    size = variance + epsilon if bug("square root missing") else torch.sqrt(variance + epsilon)
    gain, shift = (shift, gain) if bug("gain and shift swapped") else (gain, shift)
    gain = torch.ones_like(gain) if bug("gain missing") else gain
    gain = torch.roll(gain, 1) if bug("gain off by one") else gain
    shift = torch.zeros_like(shift) if bug("shift missing") else shift
    return ((wide - mean) / size * gain.float() + shift.float()).bfloat16()


@subject(
    "rms_norm",
    "epsilon 1e-5",
    "no epsilon",
    "epsilon outside the root",
    "mean of absolute values",
    "gain missing",
    "gain plus one",
    "sum not mean",
    "wrong axis",
    "subtracts the mean",
    "last block left out",
    "divisor of the padded length",
    "squares in fp16",
)
def rms_norm(bug, x, gain):
    wide, n = x.float(), x.shape[-1]
    axis = 0 if bug("wrong axis") else -1
    if bug("subtracts the mean"):
        wide = wide - wide.mean(-1, keepdim=True)
    part = wide[:, : (n - 1) // 32 * 32] if bug("last block left out") else wide
    square = part.square().sum(axis, keepdim=True) / wide.shape[axis]
    if bug("squares in fp16"):
        square = (x * x).sum(-1, keepdim=True).float() / n
    if bug("divisor of the padded length"):
        square = square * n / (-(-n // 512) * 512)
    if bug("sum not mean"):
        square = square * n
    if bug("mean of absolute values"):
        square = wide.abs().mean(-1, keepdim=True).square()
    epsilon = 1e-5 if bug("epsilon 1e-5") else 0.0 if bug("no epsilon") else 1e-3
    scale = torch.rsqrt(square + epsilon)
    if bug("epsilon outside the root"):
        scale = 1.0 / (square.sqrt() + 1e-3)
    gain = gain.float() + 1 if bug("gain plus one") else gain.float()
    gain = torch.ones_like(gain) if bug("gain missing") else gain
    return (wide * scale * gain).half()


@subject(
    "linear",
    "bias missing",
    "bias twice",
    "bias off by one",
    "activation missing",
    "relu for gelu",
    "tanh for erf",
    "activation before the bias",
    "last block of k skipped",
    "w not transposed",
    "computed in bf16",
    "computed in fp16",
    "computed in tf32",
    "sigmoid for gelu",
    "k off by one",
    "sign of the bias",
)
def linear(bug, x, w, b):
    k = x.shape[1]
    if bug("computed in bf16"):
        x, w = x.bfloat16().float(), w.bfloat16().float()
    if bug("computed in fp16"):
        x, w = x.half().float(), w.half().float()
    if bug("computed in tf32"):
        x, w = _fewer_bits(x, 11), _fewer_bits(w, 11)
    if bug("k off by one"):
        x = torch.roll(x, 1, 1)
    if bug("w not transposed"):
        w = w.reshape(k, -1).t()
    last = k // 32 * 32 - 32 * (k % 32 == 0) if bug("last block of k skipped") else k
    y = x[:, :last] @ w[:, :last].t()
    factor = 0.0 if bug("bias missing") else 2.0 if bug("bias twice") else 1.0
    factor = -1.0 if bug("sign of the bias") else factor
    bias = (torch.roll(b, 1) if bug("bias off by one") else b) * factor
    if bug("activation before the bias"):
        return torch.nn.functional.gelu(y) + bias
    y = y + bias
    if bug("activation missing"):
        return y
    if bug("relu for gelu"):
        return torch.relu(y)
    if bug("tanh for erf"):
        return torch.nn.functional.gelu(y, approximate="tanh")
    if bug("sigmoid for gelu"):
        return y * torch.sigmoid(1.702 * y)
    return 0.5 * y * (1.0 + torch.erf(y / math.sqrt(2.0)))


@subject(
    "cumsum",
    "carry lost",
    "exclusive",
    "carry of the block before last",
    "backwards",
    "restarts at 512",
    "computed in bf16",
    "last block left out",
    "along rows",
    "first element missed",
)
def cumsum(bug, x):
    if bug("along rows"):
        return x.cumsum(0)
    if bug("backwards"):
        return x.flip(-1).cumsum(-1).flip(-1)
    out, carry, older = torch.empty_like(x), torch.zeros(len(x), 1), torch.zeros(len(x), 1)
    n = x.shape[1]
    for start in range(0, n, 64):
        part = x[:, start : start + 64]
        part = part.bfloat16().float() if bug("computed in bf16") else part
        inner = part.cumsum(-1)
        if bug("first element missed"):
            inner = inner - part[:, :1] * (start == 0)
        if bug("exclusive"):
            inner = inner - part
        if bug("restarts at 512") and start == 512:
            carry = torch.zeros_like(carry)
        if not (bug("last block left out") and start + 64 >= n):
            used = older if bug("carry of the block before last") else carry
            out[:, start : start + 64] = inner + (0.0 if bug("carry lost") else used)
        else:
            out[:, start : start + 64] = 0
        older, carry = carry, carry + part.sum(-1, keepdim=True)
    return out


@subject(
    "depthwise_conv1d",
    "taps reversed",
    "one tap missing",
    "padded on the other side",
    "not padded: wraps",
    "channel off by one",
    "first channel's taps for all",
    "last tap twice",
    "batch 0 for all",
    "computed in bf16",
    "last channel left out",
)
def convolution(bug, x, w):
    n = x.shape[-1]
    side = (0, 3) if bug("padded on the other side") else (3, 0)
    padded = torch.nn.functional.pad(x, side)
    if bug("not padded: wraps"):
        padded = torch.cat([x[..., -3:], x], -1)
    if bug("computed in bf16"):
        padded = padded.bfloat16().float()
    w = w.flip(1) if bug("taps reversed") else w
    w = torch.roll(w, 1, 0) if bug("channel off by one") else w
    w = w[:1].expand_as(w) if bug("first channel's taps for all") else w
    out = torch.zeros_like(x)
    for tap in range(3 if bug("one tap missing") else 4):
        out += padded[..., tap : tap + n] * w[:, tap, None]
    if bug("last tap twice"):
        out += padded[..., 3:] * w[:, 3, None]
    if bug("batch 0 for all"):
        out = out[:1].expand_as(out).contiguous()
    if bug("last channel left out"):
        out[:, -1] = 0
    return out


@subject(
    "recurrence",
    "state lost at 32",
    "one step late",
    "gate of the step before",
    "gate missing",
    "input twice",
    "state in bf16",
    "state cut to 8 steps",
    "first batch for all",
    "starts at one",
)
def recurrence(bug, a, x):
    h, out = torch.zeros_like(x[:, 0]), torch.empty_like(x)
    if bug("starts at one"):
        h = h + 1
    if bug("first batch for all"):
        x = x[:1].expand_as(x)
    for step in range(x.shape[1]):
        if (bug("state lost at 32") and step == 32) or (
            bug("state cut to 8 steps") and step % 8 == 0
        ):
            h = torch.zeros_like(h)
        gate = a[:, max(0, step - 1)] if bug("gate of the step before") else a[:, step]
        gate = torch.ones_like(gate) if bug("gate missing") else gate
        if bug("one step late"):
            out[:, step] = h
        h = gate * h + x[:, step] * (2.0 if bug("input twice") else 1.0)
        h = h.bfloat16().float() if bug("state in bf16") else h
        if not bug("one step late"):
            out[:, step] = h
    return out
