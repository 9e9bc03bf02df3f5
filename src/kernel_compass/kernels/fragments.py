"""The packed layout of the own kernels: a lane's 16 bytes are its operands of the matrix unit.

A weight `(H, K, N)` is cut into fragments of 16 columns. Within a fragment, 512-byte chunks run
along K: 16 rows of a 16-bit code, 32 of an 8-bit code, 64 of a 4-bit code. Lane `4 g + c` of the
warp that reads a chunk finds in its 16 bytes what `mma.m16n8k16` wants of it as left operand: no
shuffle, no shared memory. The order in memory is `[head][fragment][chunk][lane][4 words]`.

Rows and columns are permuted so that neighbours meet. Within 32 rows of K, the two halves `b` of a
word, the operand's halves `h` and two steps `s` make 8 rows in a run, so a lane's activations are
16 contiguous bytes:

    k = 32 block + 8 c + 4 s + 2 h + b

Within `16 RUN` columns, a lane's outputs of `RUN` fragments are contiguous:

    n = 16 RUN (fragment // RUN) + 2 RUN g + 2 (fragment % RUN) + r

where `r` chooses the operand's upper or lower eight rows. The four words of a lane's chunk hold

    16 bit   word 2 h + r of one step:  b in bits 16 b
    8 bit    word 2 s + h:              (r, b) in bits 8 r + 16 b
    4 bit    word 2 block + s:          (h, r, b) in bits 4 (2 r + h) + 16 b

K is padded to a multiple of 128 and N to one of `16 RUN`, with zeros (code 8 of int4). `unpack`
inverts `pack`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import Code, NumberFormat

COLUMNS = 16
"""Columns of a fragment."""
PADDED_ROWS = 128
"""K is padded to a multiple of it."""
WORDS = 4
"""Words of a lane in a chunk: one 16-byte load."""
LANES = 32


def run_length(code: Code) -> int:
    """Fragments whose outputs lie together in a lane: `RUN`."""
    return 2 if code is Code.INT4 else 1


def chunk_rows(code: Code) -> int:
    """Rows of K in a chunk."""
    return 256 // code.bits


@dataclass(frozen=True)
class PackedWeight:
    """A weight in fragment order."""

    format: NumberFormat
    heads: int
    reduction: int
    """K before padding."""
    columns: int
    """N before padding."""
    words: Any
    """`(H, F, chunks, 32, 4)` int32, contiguous."""
    scales: Any | None
    """`(H, G, N)` as they were quantized; `None` for 16-bit weights."""
    zeros: Any | None
    """`(H, G, N)` uint8, or `None`."""

    @property
    def fragments(self) -> int:
        """F, of one head."""
        return int(self.words.shape[1])

    @property
    def chunks(self) -> int:
        """Chunks of a fragment."""
        return int(self.words.shape[2])

    @property
    def streamed(self) -> tuple[Any, ...]:
        """What a launch reads beside the activations."""
        return tuple(t for t in (self.words, self.scales, self.zeros) if t is not None)


def padded(code: Code, reduction: int, columns: int) -> tuple[int, int]:
    """K and N as stored."""
    wide = COLUMNS * run_length(code)
    return -(-reduction // PADDED_ROWS) * PADDED_ROWS, -(-columns // wide) * wide


def packed_bytes(number_format: NumberFormat, heads: int, reduction: int, columns: int) -> int:
    """Bytes of the words, without scales and zero points."""
    k, n = padded(number_format.weight, reduction, columns)
    return heads * k * n * number_format.weight.bits // 8


def pack(weight: QuantizedWeight) -> PackedWeight:
    """Reorder a weight's codes into fragments; scales and zero points stay as they are.

    Raises:
        UsageError: block scales, which this layout's kernels do not read.
    """
    torch = torch_library()
    code = weight.format.weight
    if weight.format.block:
        raise UsageError(
            f"{weight.format.name} has block scales, which fragments do not carry.",
            "Use the implementation own_fp8_block.",
        )
    bits = _bits(weight.codes, code)
    heads, rows, columns = bits.shape
    k, n = padded(code, rows, columns)
    fill = 8 if code is Code.INT4 else 0
    whole = torch.nn.functional.pad(bits, (0, n - columns, 0, k - rows), value=fill)
    words = _words(_fields(whole, run_length(code)), code)
    scales = None if weight.scales is None else weight.scales.contiguous()
    zeros = None if weight.zeros is None else weight.zeros.contiguous()
    return PackedWeight(weight.format, heads, rows, columns, words, scales, zeros)


def unpack(packed: PackedWeight) -> QuantizedWeight:
    """The weight that `pack` was given."""
    code = packed.format.weight
    bits = _columns(_lanes(packed.words, code), run_length(code))
    bits = bits[:, : packed.reduction, : packed.columns].contiguous()
    return QuantizedWeight(packed.format, _codes(bits, code), packed.scales, packed.zeros)


def with_streamed(packed: PackedWeight, streamed: tuple[Any, ...]) -> PackedWeight:
    """The same weight on other copies of its tensors, in the order of `streamed`."""
    rest = list(streamed[1:])
    scales = rest.pop(0) if packed.scales is not None else None
    zeros = rest.pop(0) if packed.zeros is not None else None
    return replace(packed, words=streamed[0], scales=scales, zeros=zeros)


def _bits(codes: Any, code: Code) -> Any:
    """Codes as non-negative int32."""
    torch = torch_library()
    if code.bits == 16:
        return codes.view(torch.int16).to(torch.int32) & 0xFFFF
    return codes.contiguous().view(torch.uint8).to(torch.int32)


def _codes(bits: Any, code: Code) -> Any:
    torch = torch_library()
    if code.bits == 16:
        kind = torch.bfloat16 if code is Code.BF16 else torch.float16
        return bits.to(torch.int16).view(kind)
    kind = {Code.FP8: torch.float8_e4m3fn, Code.INT8: torch.int8, Code.INT4: torch.uint8}[code]
    return bits.to(torch.uint8).view(kind)


def _fields(bits: Any, run: int) -> Any:
    """`(H, K, N)` to `(H, F, block, s, g, c, h, r, b)`."""
    heads, k, n = bits.shape
    split = bits.view(heads, k // 32, 4, 2, 2, 2, n // (16 * run), 8, run, 2)
    # H, block, c, s, h, b, F // RUN, g, F % RUN, r
    order = split.permute(0, 6, 8, 1, 3, 7, 2, 4, 9, 5)
    return order.reshape(heads, n // 16, k // 32, 2, 8, 4, 2, 2, 2)


def _columns(fields: Any, run: int) -> Any:
    """The inverse of `_fields`."""
    heads, fragments, blocks = fields.shape[:3]
    split = fields.view(heads, fragments // run, run, blocks, 2, 8, 4, 2, 2, 2)
    # H, F // RUN, F % RUN, block, s, g, c, h, r, b
    order = split.permute(0, 3, 6, 4, 7, 9, 1, 5, 2, 8)
    return order.reshape(heads, blocks * 32, fragments * 16)


def _words(fields: Any, code: Code) -> Any:
    """Combine the fields of a word; words in the order of a lane's 16 bytes."""
    torch = torch_library()
    heads, fragments, blocks = fields.shape[:3]
    wide = fields.to(torch.int64)
    if code.bits == 16:
        words = wide[..., 0] | wide[..., 1] << 16  # H, F, block, s, g, c, h, r
        words = words.reshape(heads, fragments, blocks * 2, LANES, WORDS)
    elif code.bits == 8:
        words = _or(wide[..., r, b] << (8 * r + 16 * b) for r in (0, 1) for b in (0, 1))
        words = words.permute(0, 1, 2, 4, 5, 3, 6)  # H, F, block, g, c, s, h
    else:
        places = [(h, r, b) for h in (0, 1) for r in (0, 1) for b in (0, 1)]
        words = _or(wide[..., h, r, b] << (4 * (2 * r + h) + 16 * b) for h, r, b in places)
        words = words.view(heads, fragments, blocks // 2, 2, 2, 8, 4).permute(0, 1, 2, 5, 6, 3, 4)
    words = words.reshape(heads, fragments, -1, LANES, WORDS)
    signed = (words & 0xFFFFFFFF) - ((words >> 31 & 1) << 32)
    return signed.to(torch.int32).contiguous()


def _or(parts: Any) -> Any:
    total = None
    for part in parts:
        total = part if total is None else total | part
    return total


def _lanes(words: Any, code: Code) -> Any:
    """The inverse of `_words`."""
    torch = torch_library()
    heads, fragments, chunks = words.shape[:3]
    wide = words.to(torch.int64) & 0xFFFFFFFF
    if code.bits == 16:
        split = wide.view(heads, fragments, chunks // 2, 2, 8, 4, 2, 2)
        return torch.stack([split >> 16 * b & 0xFFFF for b in (0, 1)], -1).to(torch.int32)
    if code.bits == 8:
        split = wide.view(heads, fragments, chunks, 8, 4, 2, 2).permute(0, 1, 2, 5, 3, 4, 6)
        halves = [torch.stack([split >> 8 * r + 16 * b & 0xFF for b in (0, 1)], -1) for r in (0, 1)]
        return torch.stack(halves, -2).to(torch.int32)
    split = wide.view(heads, fragments, chunks, 8, 4, 2, 2).permute(0, 1, 2, 5, 6, 3, 4)
    split = split.reshape(heads, fragments, chunks * 2, 2, 8, 4)
    parts = [
        torch.stack(
            [
                torch.stack([split >> 4 * (2 * r + h) + 16 * b & 15 for b in (0, 1)], -1)
                for r in (0, 1)
            ],
            -2,
        )
        for h in (0, 1)
    ]
    return torch.stack(parts, -3).to(torch.int32)
