"""A mixture-of-experts layer, OLMoE's sizes, as plain PyTorch writes it: a loop with indices.

Each expert looks up which tokens chose it, which waits for the GPU; how many there are depends on
the data.

    python benchmarks/steps/moe.py
    python benchmarks/steps/moe.py --hidden 64 --ffn 32 --experts 8 --chosen 2 --tokens 16
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Expert(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """As many tokens as chose it."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """`x [tokens, hidden]` to the same shape."""

    def __init__(self, hidden: int, ffn: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(Expert(hidden, ffn) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """The step."""
        weights = F.softmax(self.router(x), dim=-1, dtype=torch.float)
        weights, picked = torch.topk(weights, self.chosen, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(picked == number)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, expert(x[token]) * weights[token, place, None])
        return out


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--ffn", type=int, default=1024, help="of one expert")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--chosen", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args(words)


def made(a: argparse.Namespace) -> tuple[Experts, Tensor]:
    """The layer and its input."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    layer = Experts(a.hidden, a.ffn, a.experts, a.chosen)
    layer = layer.to(device, dtype).eval().requires_grad_(False)
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
