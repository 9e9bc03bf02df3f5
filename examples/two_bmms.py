"""Two batched matrix products of an MLA decode step, one on each side of L2.

[128,1,128] @ [128,128,512] reads 16.8 MB of bf16 weights, which fit into the L2 of a data-centre
GPU; [128,1,128] @ [128,128,4096] reads 134 MB, which do not. `--between MB` runs other work
between the products of a step, as a serving engine does.

    kernel-compass profile --regime warm --regime in_situ --regime cold examples/two_bmms.py
"""

import argparse

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--between", type=float, default=0.0, metavar="MB")
    parser.add_argument("--small-only", action="store_true", help="leave the 134 MB product out")
    args = parser.parse_args()
    torch.manual_seed(0)
    make = {"device": "cuda", "dtype": torch.bfloat16}
    heads, k = 128, 128
    x = torch.randn(heads, 1, k, **make)
    small = torch.randn(heads, k, 512, **make)
    large = torch.randn(heads, k, 4096, **make)
    other = torch.randn(max(int(args.between * 1e6 / 2), 1), **make)
    y_small, y_large = torch.empty(heads, 1, 512, **make), torch.empty(heads, 1, 4096, **make)
    for _ in range(args.steps):
        torch.bmm(x, small, out=y_small)
        if args.between:
            other.mul_(1.0)
        if not args.small_only:
            torch.bmm(x, large, out=y_large)
    torch.cuda.synchronize()
    print(f"checksum {y_small.float().sum().item():.3f}")


if __name__ == "__main__":
    main()
