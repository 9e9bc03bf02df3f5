"""How a product's weights and activations are stored: what an implementation is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.workload import Precision


class Code(StrEnum):
    """The numbers themselves."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """e4m3, finite (`float8_e4m3fn`)."""
    INT8 = "int8"
    INT4 = "int4"
    """Two a byte; stored 0 ... 15, the value is the code less its zero point (8 if symmetric)."""

    @property
    def bits(self) -> int:
        """Bits of one number."""
        return {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}[self.value]


BLOCK = 128
"""Rows and columns that share a scale in block-scaled fp8, and activations along K."""

EXAMPLES = (
    "bf16",
    "fp16",
    "w8a16_fp8",
    "w8a16_int8",
    "w8a8_fp8",
    "w8a8_int8",
    "w8a8_fp8_block",
    "w4a16_g128",
    "w4a16_g32_asym",
    "w4a16_gk",
)
"""One name of each kind; `g32`, `g64`, `g128`, `gk` (all of K), each also `_asym`."""

_NAME = re.compile(
    r"(?P<plain>bf16|fp16)|w8a16_(?P<w8>fp8|int8)|w8a8_(?P<both>fp8|int8)(?P<block>_block)?"
    r"|w4a16_g(?P<group>[1-9][0-9]{0,8}|k)(?P<asym>_asym)?"
)


@dataclass(frozen=True)
class NumberFormat:
    """Weights, their scales, and the activations that meet them."""

    weight: Code
    activation: Code = Code.BF16
    """`fp8` and `int8`: quantized inside the kernel, a scale a row (or a block of it)."""
    group: int | None = None
    """Rows of K that share a scale; `None` = all of them: one scale a column."""
    zero_points: bool = False
    """Whether codes have a zero point a group (asymmetric); else it is 8 for int4, 0 for int8."""
    block: bool = False
    """128 x 128 weight blocks and 1 x 128 activation blocks share a scale (DeepSeek-V3)."""

    @classmethod
    def parse(cls, name: str) -> NumberFormat:
        """The format of a name such as `w4a16_g128`; `EXAMPLES` shows all kinds.

        Raises:
            UsageError: no such format.
        """
        found = _NAME.fullmatch(name.strip().lower())
        if found is None or (found["block"] and found["both"] != "fp8"):
            raise UsageError(
                f"{shortened(name)!r} is not a number format.",
                "Use one of: " + ", ".join(EXAMPLES) + ".",
            )
        if found["plain"]:
            return cls(Code(found["plain"]), Code(found["plain"]))
        if found["w8"]:
            return cls(Code(found["w8"]))
        if found["both"]:
            code, block = Code(found["both"]), bool(found["block"])
            return cls(code, code, BLOCK if block else None, block=block)
        group = None if found["group"] == "k" else int(found["group"])
        return cls(Code.INT4, group=group, zero_points=bool(found["asym"]))

    @property
    def name(self) -> str:
        """What `parse` reads."""
        if self.weight.bits == 16:
            return self.weight.value
        if self.weight is Code.INT4:
            return f"w4a16_g{self.group or 'k'}" + ("_asym" if self.zero_points else "")
        bits = "w8a16" if self.activation.bits == 16 else "w8a8"
        return f"{bits}_{self.weight.value}" + ("_block" if self.block else "")

    @property
    def precision(self) -> Precision:
        """The family it belongs to; fp16 counts as bf16."""
        if self.weight.bits == 16:
            return Precision.BF16
        if self.weight is Code.INT4:
            return Precision.W4A16
        return Precision.W8A16 if self.activation.bits == 16 else Precision.W8A8

    def groups(self, reduction: int) -> int:
        """Scales along K."""
        return 1 if self.group is None else -(-reduction // self.group)

    def scale_count(self, heads: int, reduction: int, columns: int) -> int:
        """Scales of a whole weight; 0 for 16-bit weights."""
        if self.weight.bits == 16:
            return 0
        across = -(-columns // BLOCK) if self.block else columns
        return heads * self.groups(reduction) * across
