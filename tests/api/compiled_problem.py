"""A problem whose candidates launch Triton kernels in ways that are hard to compile unseen."""

COMPILED = """
import torch
import triton
import triton.language as tl

WORKLOADS = [{"m": 16, "n": 64, "k": 128}]
ERROR_BUDGET = 0.02


def inputs(workload, generator):
    def draw(*sizes):
        return torch.randn(sizes, generator=generator, device=generator.device).half()

    return {"a": draw(workload["m"], workload["k"]), "b": draw(workload["k"], workload["n"])}


def reference(a, b):
    return a @ b


def baseline(a, b):
    return a @ b


@triton.autotune(
    configs=[
        triton.Config({"BM": 16, "BN": 256, "BK": 512}, num_warps=8, num_stages=3),
        triton.Config({"BM": 16, "BN": 64, "BK": 64}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_warps=4, num_stages=2),
    ],
    key=["K"],
)
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i[:, None] * K + k[None, :], (i[:, None] < M) & (k[None, :] < K), 0)
        y = tl.load(b + k[:, None] * N + j[None, :], (k[:, None] < K) & (j[None, :] < N), 0)
        acc = tl.dot(x, y, acc)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * N + j[None, :], acc.to(tl.float16), inside)


@triton.jit
def doubled(c, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c + place, tl.load(c + place, place < total) * 2, place < total)


def launched(a, b, m):
    n = b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))
    product[grid](a, b, c, m, n, a.shape[1])
    return c


def tuned(a, b):
    return launched(a, b, a.shape[0])


def on_a_gpu_alone(a, b):
    assert a.is_cuda and torch.cuda.get_device_capability(a.device)[0] >= 9
    with torch.cuda.device(a.device):
        return launched(a, b, a.shape[0])


def by_value(a, b):
    return launched(a, b, a.shape[0] + int(a.isnan().any().item()))


def of_two(a, b):
    c = launched(a, b, a.shape[0])
    doubled[(1,)](c, c.numel(), BLOCK=4096, num_warps=32)
    return c / 2


def unaligned(a, b):
    return launched(a.view(-1)[1:-7].view(-1, 8), b, 1)


def unknown(a, b):
    import no_module_is_called_so

    return launched(a, b, 1)


def of_torch(a, b):
    return torch.einsum("mk,kn->mn", a, b)


CANDIDATES = {
    one.__name__: one
    for one in (tuned, on_a_gpu_alone, by_value, of_two, unaligned, unknown, of_torch)
}
"""
"""A file's candidates: the first configuration of the tuned kernel fits no GPU."""

PREFIX = "product."
TOO_LARGE = {"BM": 16, "BN": 256, "BK": 512, "num_warps": 8, "num_stages": 3}
FITTING = {"BM": 16, "BN": 64, "BK": 64, "num_warps": 4, "num_stages": 3}
WIDE = {"BM": 128, "BN": 128, "BK": 32, "num_warps": 4, "num_stages": 2}


def config_of(values):
    """As a trial names it."""
    return {PREFIX + name: value for name, value in values.items()}
