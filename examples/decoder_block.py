"""A decoder block in plain PyTorch, decoding or prefilling: many short kernels, a few long ones.

RMSNorm, grouped-query attention with rotary embedding and a KV cache, SwiGLU, in the shape of
Llama 3.1 8B; random weights. Decode reads 436 MB of weights and 268 MB of cached keys and values
a step for 16 tokens of work, and launches dozens of kernels that hardly do anything.

    kernel-compass profile --no-counters examples/decoder_block.py --phase decode
"""

import argparse
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Config:
    """Sizes of one block."""

    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    ffn: int = 14336
    eps: float = 1e-5
    rope_theta: float = 500_000.0


TINY = Config(hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128)
"""For a machine without a GPU."""


@dataclass(frozen=True)
class Phase:
    """What one step works on."""

    batch: int
    tokens: int
    """New tokens of each sequence."""
    context: int
    """Cached tokens of each sequence after the step."""


PHASES = {"decode": Phase(16, 1, 4096), "prefill": Phase(1, 2048, 2048)}


class DecoderBlock(torch.nn.Module):
    """`x [batch, tokens, hidden]` to the same shape; the cache holds what came before."""

    def __init__(self, config: Config, phase: Phase, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.config, self.phase = config, phase
        make = {"device": device, "dtype": dtype}

        def weight(rows: int, columns: int) -> torch.nn.Parameter:
            values = torch.randn(rows, columns, **make).mul_(1 / math.sqrt(columns))
            return torch.nn.Parameter(values, requires_grad=False)

        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q, self.k = weight(queries, config.hidden), weight(keys, config.hidden)
        self.v, self.o = weight(keys, config.hidden), weight(config.hidden, queries)
        self.gate, self.up = weight(config.ffn, config.hidden), weight(config.ffn, config.hidden)
        self.down = weight(config.hidden, config.ffn)
        self.norms = [torch.rand(config.hidden, **make).add_(0.5) for _ in range(2)]
        cache = (phase.batch, config.kv_heads, phase.context, config.head_dim)
        self.key_cache, self.value_cache = torch.randn(cache, **make), torch.randn(cache, **make)
        self.cos, self.sin = self._angles(device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Attention and feed-forward, each with its norm and its residual."""
        x = x + self._attention(self._norm(x, self.norms[0]))
        return x + self._feed_forward(self._norm(x, self.norms[1]))

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.eps)
        return gain * scaled.to(x.dtype)

    def _attention(self, x: Tensor) -> Tensor:
        phase, config = self.phase, self.config
        first = phase.context - phase.tokens
        query = self._rotated(self._heads(F.linear(x, self.q), config.heads))
        key = self._rotated(self._heads(F.linear(x, self.k), config.kv_heads))
        value = self._heads(F.linear(x, self.v), config.kv_heads)
        self.key_cache[:, :, first:] = key
        self.value_cache[:, :, first:] = value
        mixed = F.scaled_dot_product_attention(
            query,
            self.key_cache,
            self.value_cache,
            is_causal=phase.tokens > 1,
            enable_gqa=True,
        )
        return F.linear(mixed.transpose(1, 2).reshape(phase.batch, phase.tokens, -1), self.o)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(self.phase.batch, self.phase.tokens, heads, -1).transpose(1, 2)

    def _rotated(self, x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin

    def _angles(self, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine and sine for the new tokens' positions, `[tokens, head_dim]`."""
        half = torch.arange(0, self.config.head_dim, 2, device=device).float()
        frequency = self.config.rope_theta ** (-half / self.config.head_dim)
        first = self.phase.context - self.phase.tokens
        position = torch.arange(first, self.phase.context, device=device).float()
        angles = torch.outer(position, frequency).repeat(1, 2)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def make_block(phase: Phase, device: str, config: Config | None = None) -> DecoderBlock:
    """A block with random weights: bf16 on a GPU, float32 and tiny on a CPU."""
    chosen = config or (Config() if device == "cuda" else TINY)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return DecoderBlock(chosen, phase, device, dtype).eval()


def make_input(block: DecoderBlock) -> Tensor:
    """Random activations of the block's phase."""
    shape = (block.phase.batch, block.phase.tokens, block.config.hidden)
    return torch.randn(shape, device=block.q.device, dtype=block.q.dtype)


def captured(block: DecoderBlock, x: Tensor) -> torch.cuda.CUDAGraph:
    """The block's step as a CUDA graph, warmed up on a side stream first."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            block(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        block(x)
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phase", choices=tuple(PHASES), default="decode")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--graph", action="store_true", help="replay a CUDA graph")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.inference_mode():
        block = make_block(PHASES[args.phase], device)
        x = make_input(block)
        step = captured(block, x).replay if args.graph else lambda: block(x)
        for _ in range(args.steps):
            step()
        print(f"checksum {block(x).float().sum().item():.3f}")


if __name__ == "__main__":
    main()
