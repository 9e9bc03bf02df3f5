"""How often the fidelity gate rejects honest kernels, and how many mistakes it finds, by format.

python benchmarks/fidelity_power.py                    the table (markdown)
python benchmarks/fidelity_power.py --formats bf16     of these alone
python benchmarks/fidelity_power.py --draws 50         draws a format (120), seeded by their number
python benchmarks/fidelity_power.py --survivors        every mistake that passed, too

CPU only; needs torch. A draw is a shape, operands of one kind and an honest kernel, all random: how
it quantizes activations, in which order and in how many bits it adds, what it puts out. Each is
judged as it is and with one mistake of every kind that its format can have.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from statistics import median

import torch

from kernel_compass.kernels.quantize import LARGEST, quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import dequantize, expected, rounded_part, rounding_ways
from kernel_compass.records.fidelity import Expected, Fidelity
from kernel_compass.records.number_format import BLOCK, EXAMPLES, Code, NumberFormat
from kernel_compass.validation.fidelity import check_fidelity
from kernel_compass.validation.rounding import norm, output_type, whole_bound

SHAPES = (
    (1, 1, 512, 128),
    (1, 16, 512, 128),
    (1, 16, 4096, 128),
    (1, 1, 4096, 256),
    (2, 4, 128, 96),
    (3, 5, 256, 64),
    (1, 33, 200, 40),
    (4, 2, 1000, 24),
    (8, 1, 128, 64),
    (1, 8, 640, 200),
)
"""H, M, K, N."""
KINDS = (
    "normal",
    "heavy tails",
    "outlier channels",
    "positive",
    "cancelling pairs",
    "cancelling halves",
    "zeros",
    "tiny",
    "huge rows",
    "ties",
)


def operands(kind: str, shape: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations `(H, M, K)` bfloat16 and a weight `(H, K, N)` float32."""
    heads, rows, reduction, columns = shape
    a, w = torch.randn(heads, rows, reduction), torch.randn(heads, reduction, columns) / 64
    if kind == "heavy tails":
        a, w = (x / (torch.rand_like(x) + 1e-3).sqrt() for x in (a, w))
    elif kind == "outlier channels":
        a[..., torch.randperm(reduction)[:3]] *= 100
    elif kind == "positive":
        a, w = a.abs(), w.abs()
    elif kind == "cancelling pairs":
        a[..., 1::2], w[:, 1::2] = 1.001 * a[..., ::2], -w[:, ::2]
    elif kind == "cancelling halves":
        half = reduction // 2
        a, w = a.abs(), w.abs()
        a[..., half:], w[:, half:] = 1.01 * a[..., :half], -w[:, :half]
    elif kind == "zeros":
        a, w = a * (torch.rand_like(a) < 0.3), w * (torch.rand_like(w) < 0.3)
        a[..., 0, : reduction // 2], w[..., columns // 2] = 0, 0
    elif kind == "tiny":
        a *= 1e-25
    elif kind == "huge rows":
        a[:, ::3] *= 1e12
    elif kind == "ties":
        a = (a * 16).round().clamp(-63, 63) / 16
        a[..., 0] = 4
    return a.to(torch.bfloat16), w


@dataclass(frozen=True)
class Kernel:
    """An honest one, and the mistakes that it may be given."""

    quantizer: str
    order: str
    dtype: torch.dtype
    rounded_weights: tuple[int | None, ...] = ()
    """A way of `references.rounding_ways`, if it rounds them."""
    tail: int = 0
    """Rows of K that are left out."""
    fp16_sums: bool = False
    next_row_scale: bool = False
    """The first row's activations get the scale of the next."""

    def run(self, a: torch.Tensor, weight: QuantizedWeight) -> torch.Tensor:
        values, x = dequantize(weight), a.double()
        scales = torch.ones_like(x), torch.ones_like(values)
        if weight.format.activation.bits == 8:
            codes, scale = self.quantized(a, weight.format)
            units = replace(weight, codes=torch.ones_like(weight.codes))
            x, scales = codes * scale, (scale, dequantize(units))
        elif self.rounded_weights:
            whole = slice(0, weight.heads), slice(0, weight.columns)
            values = rounded_part(weight, *whole, self.rounded_weights[0])
        if self.tail:
            x, values = x[..., : -self.tail], values[:, : -self.tail]
        if self.fp16_sums:
            return fp16_sums(x, values).to(self.dtype)
        if self.order.startswith("truncated"):
            return ORDERS[self.order](x, values, scales).to(self.dtype)
        return ORDERS[self.order](x, values).to(self.dtype)

    def quantized(
        self, a: torch.Tensor, number_format: NumberFormat
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes of activations and the scale of each, as this kernel's float32 makes them."""
        limit, reduction = LARGEST[number_format.activation], a.shape[-1]
        width = BLOCK if number_format.block else reduction
        parts = torch.nn.functional.pad(a.float(), (0, -reduction % width))
        parts = parts.reshape(*a.shape[:-1], -1, width)
        largest = parts.abs().amax(-1, keepdim=True)
        scale = torch.where(largest > 0, largest / limit, 1.0)
        if self.quantizer == "division":
            ratio = parts / scale
        elif self.quantizer == "reciprocal of the scale":
            ratio = parts * (1 / scale)
        elif self.quantizer == "limit over largest":
            ratio = parts * torch.where(largest > 0, limit / largest, 1.0)
        elif self.quantizer == "scale by a product":
            scale = torch.where(largest > 0, largest * torch.tensor(1 / limit), 1.0)
            ratio = parts / scale
        elif self.quantizer == "approximate, mixed":
            ulps = torch.randint(-2, 3, scale.shape, generator=torch.Generator().manual_seed(1))
            ratio = parts * ((1 / scale) * (1 + ulps * 2.0**-23))
        else:
            shift = {"approximate, below": -(2.0**-23), "approximate, above": 2.0**-23}
            ratio = parts * ((1 / scale) * (1 + shift[self.quantizer]))
        if number_format.activation is Code.FP8:
            codes = ratio.clamp(-limit, limit).to(torch.float8_e4m3fn).double()
        elif self.quantizer == "approximate, above":
            codes = (ratio.sign() * (ratio.abs() + 0.5).floor()).clamp(-limit, limit).double()
        else:
            codes = ratio.round().clamp(-limit, limit).double()
        scale = scale.double()
        if self.next_row_scale:
            scale[:, 0] = scale[:, 1]
        both = (x.expand(parts.shape).reshape(*a.shape[:-1], -1) for x in (codes, scale))
        codes, scale = (x[..., :reduction] for x in both)
        return codes, scale


QUANTIZERS = (
    "division",
    "reciprocal of the scale",
    "limit over largest",
    "scale by a product",
    "approximate, below",
    "approximate, above",
    "approximate, mixed",
)


def one_by_one(x: torch.Tensor, w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros(*x.shape[:2], w.shape[2], dtype=dtype)
    x, w = x.to(dtype), w.to(dtype)
    for k in range(x.shape[-1]):
        total = total + x[..., k : k + 1] * w[:, k : k + 1]
    return total


def float32_sums(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return one_by_one(x, w, torch.float32)


def fp16_sums(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Products of numbers scaled to a size that suits fp16, added in it."""
    unit = float((x.abs() @ w.abs()).max()) / 256 or 1.0
    total = torch.zeros(*x.shape[:2], w.shape[2], dtype=torch.float16)
    for k in range(x.shape[-1]):
        product = x[..., k : k + 1] * w[:, k : k + 1] / unit
        total = (total.float() + product.float()).to(torch.float16)
    return total.double() * unit


def blocks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """float32, in blocks of a random length, K in a random order."""
    order, length = torch.randperm(x.shape[-1]), int(torch.randint(16, 257, ()))
    x, w = x[..., order].float(), w[:, order].float()
    cuts = range(0, x.shape[-1], length)
    return sum(x[..., k : k + length] @ w[:, k : k + length] for k in cuts)


Scales = tuple[torch.Tensor, torch.Tensor]
"""Of each activation and of each weight."""


def truncated(
    x: torch.Tensor, w: torch.Tensor, scales: Scales, bits: int = 13, every: int = BLOCK
) -> torch.Tensor:
    """As Hopper's fp8 product of codes, scaled every `every` of K, which share their scales."""
    total = torch.zeros(*x.shape[:2], w.shape[2], dtype=torch.float32)
    for first in range(0, x.shape[-1], every):
        end = min(first + every, x.shape[-1])
        left, right = scales[0][..., first, None].double(), scales[1][:, first, None].double()
        # codes again: the division's own rounding is rounded away
        codes = (x[..., first:end] / left).float(), (w[:, first:end] / right).float()
        part = cut_off(codes[0].double(), codes[1].double(), bits)
        total += (part * left * right).float()
    return total


def cut_off(x: torch.Tensor, w: torch.Tensor, bits: int) -> torch.Tensor:
    """32 products at a time and the sum, each cut off `bits` behind the point of the largest."""
    part = torch.zeros(*x.shape[:2], 1, w.shape[2], dtype=torch.float64)
    for k in range(0, x.shape[-1], 32):
        addends = torch.cat((part, x[:, :, k : k + 32, None] * w[:, None, k : k + 32]), 2)
        exponent = torch.frexp(addends.abs().amax(2, keepdim=True))[1] - 1
        unit = torch.ldexp(torch.ones_like(part), exponent - bits)
        part = ((addends / unit).trunc() * unit).sum(2, keepdim=True)
    return part.squeeze(2)


def truncated_shuffled(x: torch.Tensor, w: torch.Tensor, scales: Scales) -> torch.Tensor:
    """K in a random order within each 128, as a packed layout may have it."""
    order = [k + torch.randperm(min(BLOCK, x.shape[-1] - k)) for k in range(0, x.shape[-1], BLOCK)]
    mixed = torch.cat(order)
    return truncated(x[..., mixed], w[:, mixed], scales)


def truncated_64(x: torch.Tensor, w: torch.Tensor, scales: Scales) -> torch.Tensor:
    """In float32 every 64."""
    return truncated(x, w, scales, every=64)


def tensor_core(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """16-bit operands: 23 bits behind the point, never rounded."""
    return cut_off(x, w, 23).float()


ORDERS: dict[str, Callable[..., torch.Tensor]] = {
    f.__name__: f
    for f in (float32_sums, blocks, truncated, truncated_shuffled, truncated_64, tensor_core)
}
FP8_ORDERS = ("float32_sums", "blocks", "truncated", "truncated_shuffled", "truncated_64")
OTHER_ORDERS = ("float32_sums", "blocks", "tensor_core")


@dataclass(frozen=True)
class Draw:
    """One honest kernel on operands of its own."""

    kind: str
    shape: tuple[int, ...]
    kernel: Kernel
    a: torch.Tensor
    weight: QuantizedWeight
    reference: Expected

    @property
    def where(self) -> str:
        """In words."""
        kernel, rounded = self.kernel, ", rounded weights" * bool(self.kernel.rounded_weights)
        return (
            f"{self.kind} {self.shape}, {kernel.quantizer}, {kernel.order}, {kernel.dtype}{rounded}"
        )

    def judged(self, output: torch.Tensor) -> Fidelity:
        return check_fidelity(
            output, self.reference, rounded_weights=bool(self.kernel.rounded_weights)
        )


def draw(name: str, number: int, shapes: Sequence[tuple[int, ...]] = SHAPES) -> Draw:
    """Number 0, 1, ... of a format: seeded by both."""
    random = Random(f"{name} {number}")
    torch.manual_seed(random.getrandbits(40))
    kind, shape = KINDS[number % len(KINDS)], random.choice(shapes)
    number_format = NumberFormat.parse(name)
    a, w = operands(kind, shape)
    if number_format.weight is Code.FP16:
        a = a.to(torch.float16) if kind not in ("tiny", "huge rows") else a
    both_fp8 = number_format.activation is Code.FP8
    few_bits = number_format.weight.bits < 16 and number_format.activation.bits == 16
    kernel = Kernel(
        random.choice(QUANTIZERS),
        random.choice(FP8_ORDERS if both_fp8 else OTHER_ORDERS),
        random.choice((torch.bfloat16, torch.bfloat16, torch.float32)),
        (random.choice(rounding_ways(number_format)),)
        if few_bits and random.random() < 0.5
        else (),
    )
    weight = quantize(w, number_format)
    return Draw(kind, shape, kernel, a, weight, expected(a, weight))


def mistakes(one: Draw, output: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Outputs with one mistake each, of the kernel that put out `output`."""
    heads, rows, reduction, _ = one.shape
    yield "scale 1 % up", (output.double() * 1.01).to(output.dtype)
    yield "scale 1 % down", (output.double() * 0.99).to(output.dtype)
    for tail in (32, 64, 128):
        if tail < reduction:
            yield f"last {tail} of K missing", run(one, tail=tail)
    yield "sums in fp16", run(one, fp16_sums=True)
    yield "last column dropped", without(output, (..., -1))
    if rows > 1:
        yield "last row dropped", without(output, (..., -1, slice(None)))
        yield "a row of another call", stale(output)
    if heads > 1:
        yield "two heads swapped", output[[1, 0, *range(2, heads)]]
    if one.weight.format.activation.bits == 8 and rows > 1:
        yield "a row with the next one's scale", run(one, next_row_scale=True)
    yield from wrong_weights(one)


def run(one: Draw, **mistake: object) -> torch.Tensor:
    return replace(one.kernel, **mistake).run(one.a, one.weight)  # type: ignore[arg-type]


def without(output: torch.Tensor, place: object) -> torch.Tensor:
    output = output.clone()
    output[place] = 0  # type: ignore[index]
    return output


def stale(output: torch.Tensor) -> torch.Tensor:
    output = output.clone()
    output[:, 0] = output[:, 0].flip(-1)
    return output


def wrong_weights(one: Draw) -> Iterator[tuple[str, torch.Tensor]]:
    scales, zeros = one.weight.scales, one.weight.zeros
    if scales is None:
        return
    doubled, moved = scales.clone(), scales.clone()
    doubled[0, -1, 0] *= 2
    yield "one scale doubled", one.kernel.run(one.a, replace(one.weight, scales=doubled))
    moved[0, 0] = scales[0, 1] if scales.shape[1] > 1 else scales[0, 0].roll(1, -1)
    yield "scales of the next group", one.kernel.run(one.a, replace(one.weight, scales=moved))
    if one.weight.format.block and scales.shape[2] > 1 < scales.shape[1]:
        turned = scales[0].t().reshape(-1).repeat(2)[: scales[0].numel()].reshape(scales[0].shape)
        wrong = torch.cat((turned[None], scales[1:]))
        yield "block scales transposed", one.kernel.run(one.a, replace(one.weight, scales=wrong))
    if zeros is not None:
        one_off, all_off = zeros.clone(), zeros + 1
        one_off[0, 0] += 1
        for name, wrong in (("zero points of one group", one_off), ("zero points", all_off)):
            yield f"{name} off by one", one.kernel.run(one.a, replace(one.weight, zeros=wrong))


def honest_error(one: Draw) -> float:
    """The largest error, as a norm, of kernels that differ from this one in honest choices."""
    act8 = one.weight.format.activation.bits == 8
    orders = FP8_ORDERS[2:4] if one.reference.fp8_sums is not None else OTHER_ORDERS[:2]
    ways = rounding_ways(one.weight.format) if one.kernel.rounded_weights else ()
    kernels = [
        replace(one.kernel, quantizer=quantizer, order=order, rounded_weights=way)
        for quantizer in (QUANTIZERS if act8 else QUANTIZERS[:1])
        for order in orders
        for way in ([(w,) for w in ways] or [()])
    ]
    return max(distance(one, kernel.run(one.a, one.weight)) for kernel in kernels)


def distance(one: Draw, output: torch.Tensor) -> float:
    reference = one.reference
    off = output.double() - (reference.nearest(output) if reference.nearest else reference.value)
    return norm(off.where(off.isfinite(), 0.0))


@dataclass(frozen=True)
class Passed:
    """A mistake that was not found."""

    mistake: str
    kind: str
    off: float
    """Relative Frobenius error."""
    hidden: bool
    """No further off on the whole than an honest kernel is on these operands."""
    where: str


@dataclass
class Record:
    """What became of a format's draws."""

    honest: int = 0
    mistakes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Judged, by mistake and kind of operands."""
    rejected: list[str] = field(default_factory=list)
    """Honest kernels, and why."""
    passed: list[Passed] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    """Of the whole, relative, on Gaussian operands and an output in bfloat16."""

    @property
    def found(self) -> float:
        """Share of the mistakes that were rejected."""
        return 1 - len(self.passed) / self.mistakes.total()

    @property
    def found_of_visible(self) -> float:
        """The same among those that are further off than honest kernels."""
        hidden = sum(one.hidden for one in self.passed)
        return 1 - (len(self.passed) - hidden) / (self.mistakes.total() - hidden)

    @property
    def found_of_plain(self) -> float:
        """The same where sums do not cancel, ties are no rule, and sums are not in fp16."""
        judged = sum(n for key, n in self.mistakes.items() if is_plain(*key))
        return 1 - sum(is_plain(one.mistake, one.kind) for one in self.passed) / judged


def is_plain(mistake: str, kind: str) -> bool:
    return mistake != "sums in fp16" and kind != "ties" and "cancelling" not in kind


def power(
    name: str,
    numbers: Iterable[int],
    with_mistakes: bool = True,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
) -> Record:
    """Judges draws of a format, as they are and with every mistake."""
    record = Record()
    for number in numbers:
        one = draw(name, number, shapes)
        output = one.kernel.run(one.a, one.weight)
        found = one.judged(output)
        record.honest += 1
        if not found.passed:
            record.rejected.append(f"{name} {number}: {one.where}: {found.reason}")
        if one.kind == "normal":
            record.limits.append(limit_of(one))
        if with_mistakes:
            judge_mistakes(one, output, record, number)
    return record


def judge_mistakes(one: Draw, output: torch.Tensor, record: Record, number: int) -> None:
    honest = None
    for mistake, wrong in mistakes(one, output):
        if torch.equal(wrong, output):
            continue
        record.mistakes[mistake, one.kind] += 1
        if one.judged(wrong).passed:
            honest = honest_error(one) if honest is None else honest
            off, size = distance(one, wrong), norm(one.reference.value)
            where = f"{one.weight.format.name} {number}: {one.where}"
            record.passed.append(Passed(mistake, one.kind, off / size, off <= honest, where))


def limit_of(one: Draw) -> float:
    judged = torch.ones_like(one.reference.value, dtype=torch.bool)
    limit = output_type(torch.bfloat16).limit
    return whole_bound(one.reference, judged, torch.bfloat16, limit) / norm(one.reference.value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--formats", default=",".join(EXAMPLES))
    parser.add_argument("--draws", type=int, default=120)
    parser.add_argument("--survivors", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| format | honest kernels, rejected | mistakes | found | of those beyond honest errors "
        "| of plain ones | limit on the whole, median (largest) | passed most often |"
    )
    print("|---|---|---|---|---|---|---|---|")
    records = {}
    for name in args.formats.split(","):
        record = records[name] = power(name, range(args.draws))
        common = Counter(one.mistake for one in record.passed).most_common(3)
        print(
            f"| `{name}` | {record.honest}, {len(record.rejected)} | {record.mistakes.total()} "
            f"| {record.found:.1%} | {record.found_of_visible:.1%} | {record.found_of_plain:.1%} "
            f"| {median(record.limits):.2%} ({max(record.limits):.2%}) "
            f"| {', '.join(f'{mistake} {n}' for mistake, n in common)} |",
            flush=True,
        )
    for record in records.values():
        print(*record.rejected, sep="\n", end="\n" * bool(record.rejected))
        for one in record.passed if args.survivors else ():
            print(f"{one.mistake}, {one.off:.3%} off{', hidden' * one.hidden}: {one.where}")


if __name__ == "__main__":
    main()
