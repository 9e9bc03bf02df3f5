r"""A decoder block as a serving engine runs it: what is easily won has been won.

Llama 3.1 8B's sizes. Query, key and value are one product, gate and up another; the residual is
added in the norm's kernel; keys and values lie in pages that a table names, read by a Triton kernel
that splits the context; the pieces between are compiled, and on a GPU the step is replayed as a
CUDA graph.

    python benchmarks/steps/served_block.py
    python benchmarks/steps/served_block.py --hidden 64 --heads 4 --kv-heads 2 --ffn 128 \
        --context 64
"""

import argparse
import math

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

PAGE = 16
"""Tokens in a page."""
EPS, THETA = 1e-5, 500_000.0


@triton.jit
def paged_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    out_ptr,
    top_ptr,
    total_ptr,
    scale,
    context,
    pages,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One part of one sequence's context for the queries that share a key head."""
    sequence, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, column = tl.arange(0, ROWS), tl.arange(0, HEAD)
    first_query = (sequence * KV_HEADS + kv_head) * GROUP
    real = row[:, None] < GROUP
    q = tl.load(q_ptr + (first_query + row[:, None]) * HEAD + column[None, :], mask=real, other=0.0)
    each = tl.cdiv(tl.cdiv(context, SPLITS), BLOCK) * BLOCK
    begin = split * each
    end = tl.minimum(begin + each, context)
    top = tl.full((ROWS,), -1.0e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, HEAD), tl.float32)
    for start in range(begin, end, BLOCK):
        token = start + tl.arange(0, BLOCK)
        held = token < end
        page = tl.load(table_ptr + sequence * pages + token // PAGE, mask=held, other=0)
        at = ((page.to(tl.int64) * PAGE + token % PAGE) * KV_HEADS + kv_head) * HEAD
        place = at[:, None] + column[None, :]
        k = tl.load(k_ptr + place, mask=held[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(held[None, :], scores, -1.0e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        weights = tl.where(held[None, :], tl.exp(scores - higher[:, None]), 0.0)
        kept = tl.exp(top - higher)
        v = tl.load(v_ptr + place, mask=held[:, None], other=0.0)
        mixed = mixed * kept[:, None] + tl.dot(weights.to(v.dtype), v)
        total = total * kept + tl.sum(weights, 1)
        top = higher
    part = ((sequence * KV_HEADS + kv_head) * SPLITS + split) * GROUP + row
    tl.store(out_ptr + part[:, None] * HEAD + column[None, :], mixed, mask=real)
    tl.store(top_ptr + part, top, mask=row < GROUP)
    tl.store(total_ptr + part, total, mask=row < GROUP)


class ServedBlock(nn.Module):
    """`hidden, residual [tokens, width]`, one token of each sequence, to the same."""

    def __init__(self, a: argparse.Namespace, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.a, self.head = a, a.hidden // a.heads
        self.splits = a.splits
        make = {"device": device, "dtype": dtype}

        def weight(rows: int, columns: int) -> nn.Parameter:
            values = torch.randn(rows, columns, **make).mul_(1 / math.sqrt(columns))
            return nn.Parameter(values, requires_grad=False)

        self.qkv = weight((a.heads + 2 * a.kv_heads) * self.head, a.hidden)
        self.out = weight(a.hidden, a.hidden)
        self.gate_up, self.down = weight(2 * a.ffn, a.hidden), weight(a.hidden, a.ffn)
        for name in ("norm_in", "norm_after"):
            self.register_buffer(name, torch.rand(a.hidden, **make).add_(0.5))
        pages = -(-a.context // PAGE)
        shape = (a.tokens * pages, PAGE, a.kv_heads, self.head)
        self.register_buffer("keys", torch.randn(shape, **make))
        self.register_buffer("values", torch.randn(shape, **make))
        table = torch.randperm(a.tokens * pages, device=device).view(a.tokens, pages)
        self.register_buffer("table", table.int())
        last = a.context - 1
        self.register_buffer("slot", table[:, last // PAGE] * PAGE + last % PAGE)
        half = torch.arange(0, self.head, 2, device=device).float() / self.head
        angles = (last * THETA**-half).repeat(2)
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))
        compiled = torch.compile if a.compile else lambda function: function
        self.before, self.after = compiled(self._before), compiled(self._after)

    def forward(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The step."""
        query, residual = self.before(hidden, residual)
        return self.after(*self._attention(query), residual)

    def _before(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Up to the queries; keys and values are written to their pages."""
        a = self.a
        hidden, residual = self._norm(hidden, residual, self.norm_in)
        parts = (a.heads * self.head, a.kv_heads * self.head, a.kv_heads * self.head)
        query, key, value = F.linear(hidden, self.qkv).split(parts, -1)
        query, key = self._rotated(query, a.heads), self._rotated(key, a.kv_heads)
        self.keys.view(-1, a.kv_heads, self.head).index_copy_(0, self.slot, key)
        value = value.reshape(-1, a.kv_heads, self.head)
        self.values.view(-1, a.kv_heads, self.head).index_copy_(0, self.slot, value)
        return query, residual

    def _after(
        self, mixed: Tensor, top: Tensor, total: Tensor, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The parts of the context put together; all that follows."""
        weights = torch.exp(top - top.amax(2, keepdim=True))
        joined = (mixed * weights[..., None]).sum(2) / (total * weights).sum(2)[..., None]
        hidden = F.linear(joined.flatten(1).to(residual.dtype), self.out)
        hidden, residual = self._norm(hidden, residual, self.norm_after)
        gate, up = F.linear(hidden, self.gate_up).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down), residual

    def _attention(self, query: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, group = self.a, self.a.heads // self.a.kv_heads
        shape = (a.tokens, a.kv_heads, self.splits, group)
        make = {"device": query.device, "dtype": torch.float32}
        mixed = torch.empty((*shape, self.head), **make)
        top, total = torch.empty(shape, **make), torch.empty(shape, **make)
        if query.is_cuda or a.interpreted:
            paged_decode[(a.tokens, a.kv_heads, self.splits)](
                query,
                self.keys,
                self.values,
                self.table,
                mixed,
                top,
                total,
                self.head**-0.5,
                a.context,
                self.table.shape[1],
                KV_HEADS=a.kv_heads,
                GROUP=group,
                ROWS=max(16, group),
                HEAD=self.head,
                PAGE=PAGE,
                BLOCK=64,
                SPLITS=self.splits,
                num_warps=4,
            )
            return mixed, top, total
        return self._gathered(query, mixed, top, total)

    def _gathered(self, query: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        """The same without a GPU: all of the context as one part."""
        a, (mixed, top, total) = self.a, parts
        table = self.table.long()
        key, value = (
            pages[table].flatten(1, 2)[:, : a.context].float() for pages in (self.keys, self.values)
        )
        grouped = query.view(a.tokens, a.kv_heads, -1, self.head).float()
        scores = torch.einsum("bkgd,btkd->bkgt", grouped, key) * self.head**-0.5
        highest = scores.amax(-1)
        weights = torch.exp(scores - highest[..., None])
        for part, start in ((mixed, 0.0), (top, -1.0e30), (total, 0.0)):
            part.fill_(start)
        mixed[:, :, 0] = torch.einsum("bkgt,btkd->bkgd", weights, value)
        top[:, :, 0], total[:, :, 0] = highest, weights.sum(-1)
        return mixed, top, total

    def _norm(self, hidden: Tensor, residual: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        residual = residual + hidden
        wide = residual.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return scaled.to(residual.dtype) * gain, residual

    def _rotated(self, x: Tensor, heads: int) -> Tensor:
        x = x.reshape(-1, heads, self.head)
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--ffn", type=int, default=14336)
    parser.add_argument("--tokens", type=int, default=16, help="sequences, one token each")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--splits", type=int, default=8, help="of the context")
    parser.add_argument("--steps", type=int, default=5)
    flag = argparse.BooleanOptionalAction
    parser.add_argument("--compile", action=flag, default=on_gpu)
    parser.add_argument("--graph", action=flag, default=on_gpu)
    parser.add_argument("--interpreted", action="store_true", help="Triton's interpreter is on")
    return parser.parse_args(words)


def made(a: argparse.Namespace) -> tuple[ServedBlock, tuple[Tensor, Tensor]]:
    """The block and its inputs."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    block = ServedBlock(a, device, dtype).eval()
    hidden, residual = (torch.randn(a.tokens, a.hidden, device=device, dtype=dtype) for _ in "hr")
    return block, (hidden, residual)


def main() -> None:
    a = arguments()
    with torch.no_grad():
        block, given = made(a)
        for _ in range(a.steps):
            found = block(*given)
        if a.graph:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = block(*given)
            for _ in range(a.steps):
                graph.replay()
        print(f"norm {found[0].float().norm().item():.4f}")


if __name__ == "__main__":
    main()
