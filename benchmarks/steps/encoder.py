"""An encoder block of BERT-large's sizes over a batch of sequences: large products, wide passes.

python benchmarks/steps/encoder.py
python benchmarks/steps/encoder.py --hidden 64 --heads 4 --ffn 128 --batch 2 --length 16
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EncoderBlock(nn.Module):
    """`x [batch, length, hidden]` to the same shape; norms behind the residuals."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.wide, self.narrow = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.after_attention, self.after_ffn = nn.LayerNorm(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """The step."""
        mixed = F.scaled_dot_product_attention(
            self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x))
        )
        mixed = mixed.transpose(1, 2).reshape(x.shape)
        x = self.after_attention(x + self.out(mixed))
        return self.after_ffn(x + self.narrow(F.gelu(self.wide(x))))

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--ffn", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    return parser.parse_args(words)


def made(a: argparse.Namespace) -> tuple[EncoderBlock, Tensor]:
    """The block and its input."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    block = EncoderBlock(a.hidden, a.heads, a.ffn).to(device, dtype).eval().requires_grad_(False)
    return block, torch.randn(a.batch, a.length, a.hidden, device=device, dtype=dtype)


def main() -> None:
    a = arguments()
    with torch.no_grad():
        block, x = made(a)
        for _ in range(a.steps):
            found = block(x)
        print(f"norm {found.float().norm().item():.4f}")


if __name__ == "__main__":
    main()
