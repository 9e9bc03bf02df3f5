"""Programs whose steps are captured: each prints what it computed."""

BLOCK = """
import sys, torch
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.register_buffer("scale", torch.full((8,), 0.5))
        self.cache = torch.zeros(4, 8)
    def forward(self, x, at=0):
        x = x + self.second(torch.relu(self.first(x))) * self.scale
        self.cache[at] = x.sum(0)
        return x + self.cache.mean(0)
torch.manual_seed(0)
"""

PLAIN = (
    BLOCK
    + """
def main():
    block = Block()
    with torch.no_grad():
        x = torch.randn(3, 8)
        for at in range(3):
            x = block(x, at=at)
    print("sum", x.sum().item(), sys.argv[1:])
if __name__ == "__main__":
    main()
"""
)

EXITS = (
    PLAIN
    + """
    print(sys.stdin.readline().strip())
    sys.exit(3)
"""
)

RAISES = (
    PLAIN
    + """
    raise ValueError("at the end")
"""
)

CUSTOM_AUTOGRAD = """
import torch
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x * by
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.by, None
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return Scale.apply(self.linear(x), 2.0).sum()
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(torch.ones(2, 4))
    loss.backward()
    optimizer.step()
print(loss.item(), net.linear.weight.sum().item())
"""

GROWS = """
import torch
class Grows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = []
    def forward(self, x):
        self.kept.append(x)
        return torch.cat(self.kept).sum(0)
model = Grows()
for n in range(3):
    y = model(torch.ones(2, 3))
print(y.tolist(), len(model.kept))
"""

THREADS = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(1)
pool.submit(lambda: None).result()
class Threads(torch.nn.Module):
    def forward(self, x):
        out = {}
        def work():
            out["a"] = torch.sin(x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return out["a"] + pool.submit(torch.cos, x).result()
model = Threads()
for _ in range(2):
    y = model(torch.ones(3))
print(y.tolist())
"""

SUBPROCESS = """
import subprocess, sys, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
model = Model()
told = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True)
print(model(torch.ones(2)).tolist(), told.stdout.strip())
"""

DATA_DEPENDENT = """
import torch
class Branches(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x[x > 0]
        return x - 1
model = Branches()
for sign in (1, -1, 1):
    y = model(torch.tensor([1.0, -0.5, 2.0]) * sign)
print(y.tolist())
"""

COMPILED = """
import torch
def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
fast = torch.compile(norm, backend="eager")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
    def forward(self, x):
        return fast(self.linear(x)) + 1
torch.manual_seed(0)
model = Model()
with torch.no_grad():
    for _ in range(2):
        y = model(torch.ones(2, 8))
import torch._dynamo.utils as utils
print(y.sum().item(), dict(utils.counters["stats"]), dict(utils.counters["graph_break"]))
"""

COMPILED_PRODUCT = """
import torch
made = []
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8, 4) / 8)
        self.register_buffer("seen", torch.zeros(2, 4))
        self.fast = torch.compile(self.inner, backend="eager")
    def inner(self, x):
        self.seen.add_(1)
        return torch.relu(x @ self.weight) + self.seen
    def forward(self, x):
        return self.fast(x + 1) * 2
model = Model()
with torch.no_grad():
    for _ in range(2):
        y = model(torch.ones(2, 8))
print(y.tolist())
"""

NOT_EAGER = """
import torch
def inner(x):
    if not torch.compiler.is_compiling():
        raise MemoryError("whole scores")
    return x * 2
fast = torch.compile(inner, backend="eager")
class Model(torch.nn.Module):
    def forward(self, x):
        return fast(x)
model = Model()
for _ in range(2):
    y = model(torch.ones(2))
print(y.tolist())
"""

GRAPH_BREAK = """
import torch
@torch.compile(backend="eager")
def step(x):
    y = torch.sin(x)
    print("inside")
    return y + 1
for _ in range(3):
    y = step(torch.ones(4))
print(y.tolist())
"""

TRITON = """
import torch, triton
import triton.language as tl
@triton.jit
def double(x):
    return x * 2
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, double(tl.load(x + at, mask=at < n)), mask=at < n)
class Model(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
            x, y, x.numel(), BLOCK=32, num_warps=2)
        return y + 1
model = Model()
for _ in range(2):
    y = model(torch.arange(40.0))
print(y.sum().item())
"""

NO_MODULE = """
import torch
x = torch.ones(3)
print((x @ torch.ones(3, 3)).tolist())
"""

ENTRIES = (
    BLOCK
    + """
def returned():
    block, x = Block(), torch.randn(3, 8)
    def step():
        with torch.no_grad():
            return block(x, at=1)
    return step
def called():
    return torch.ones(3) * 2
not_callable = 3
print("loaded", __name__)
"""
)

TRAINING = """
import torch
def training():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    compiled = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.ones(4, 8)
    def step():
        optimizer.zero_grad()
        loss = compiled(x).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step
"""
