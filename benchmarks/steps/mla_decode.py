"""A decode step of multi-head latent attention, DeepSeek-V3's sizes, with absorbed projections.

As the model's own inference code writes it: 16 sequences, one new token each, 4096 cached. The
caches hold 512 latent values and 64 rotated ones a token, shared by all heads. What
expands latent values to keys is multiplied into the queries (`q_absorb`), what expands them to
values into the result (`v_up`): two batched products.

    python benchmarks/steps/mla_decode.py
    python benchmarks/steps/mla_decode.py --hidden 64 --heads 4 --q-rank 32 --rank 32 --context 64
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS, THETA = 1e-6, 10_000.0


class LatentAttention(nn.Module):
    """`x [tokens, hidden]`, one token of each sequence, to the same shape."""

    def __init__(self, a: argparse.Namespace, device: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.a = a
        make = {"device": device, "dtype": dtype}

        def weight(*shape: int) -> nn.Parameter:
            values = torch.randn(shape, **make).mul_(1 / math.sqrt(shape[-1]))
            return nn.Parameter(values, requires_grad=False)

        self.q_a = weight(a.q_rank, a.hidden)
        self.kv_a = weight(a.rank + a.rope, a.hidden)
        self.q_b = weight(a.heads * (a.nope + a.rope), a.q_rank)
        self.q_absorb = weight(a.heads, a.nope, a.rank)
        self.v_up = weight(a.heads, a.rank, a.v_head)
        self.out = weight(a.hidden, a.heads * a.v_head)
        self.register_buffer("q_norm", torch.rand(a.q_rank, **make).add_(0.5))
        self.register_buffer("kv_norm", torch.rand(a.rank, **make).add_(0.5))
        self.register_buffer("latent", torch.randn(a.tokens, a.context, a.rank, **make))
        self.register_buffer("shared", torch.randn(a.tokens, a.context, a.rope, **make))
        half = torch.arange(0, a.rope, 2, device=device).float() / a.rope
        angles = ((a.context - 1) * THETA**-half).repeat(2)
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """The step; the caches' last token is written."""
        a = self.a
        query = F.linear(self._norm(F.linear(x, self.q_a), self.q_norm), self.q_b)
        nope, rope = query.view(a.tokens, a.heads, -1).split((a.nope, a.rope), -1)
        absorbed = torch.bmm(nope.transpose(0, 1), self.q_absorb).transpose(0, 1)
        rope = self._rotated(rope)
        latent, shared = F.linear(x, self.kv_a).split((a.rank, a.rope), -1)
        self.latent[:, -1] = self._norm(latent, self.kv_norm)
        self.shared[:, -1] = self._rotated(shared)
        scores = torch.einsum("bhc,btc->bht", absorbed, self.latent)
        scores = scores + torch.einsum("bhr,btr->bht", rope, self.shared)
        scores = scores * (a.nope + a.rope) ** -0.5
        weights = scores.softmax(-1, dtype=torch.float32).to(x.dtype)
        mixed = torch.einsum("bht,btc->bhc", weights, self.latent)
        values = torch.bmm(mixed.transpose(0, 1), self.v_up)
        return F.linear(values.transpose(0, 1).reshape(a.tokens, -1), self.out)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
        return scaled.to(x.dtype) * gain

    def _rotated(self, x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat((-high, low), -1) * self.sin


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--heads", type=int, default=128)
    parser.add_argument("--q-rank", type=int, default=1536)
    parser.add_argument("--rank", type=int, default=512)
    parser.add_argument("--nope", type=int, default=128, help="a head's values without rotation")
    parser.add_argument("--rope", type=int, default=64)
    parser.add_argument("--v-head", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=16, help="sequences, one token each")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args(words)


def made(a: argparse.Namespace) -> tuple[LatentAttention, Tensor]:
    """The layer and its input."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    layer = LatentAttention(a, device, dtype).eval()
    return layer, torch.randn(a.tokens, a.hidden, device=device, dtype=dtype)


def main() -> None:
    a = arguments()
    with torch.no_grad():
        layer, x = made(a)
        for _ in range(a.steps):
            found = layer(x)
        print(f"norm {found.float().norm().item():.4f}")


if __name__ == "__main__":
    main()
