"""What a compiled kernel says of itself: registers and stack of an ELF cubin, instructions of SASS.

A cubin's `.nv.info` section is a list of records: a byte of format, a byte of kind, and either 16
bits or a length and so many bytes. Kind 0x2f carries a function's registers, 0x11 its stack frame.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kernel_compass.errors import UsageError

_MAGIC = b"\x7fELF\x02\x01"
"""64 bits, little endian."""
_SIZED = 4
"""Format of a record that has a length."""
_REGISTERS, _FRAME = 0x2F, 0x11
_SYMBOLS, _FUNCTION = 2, 2
"""Type of a section of symbols; type of a symbol that is a function."""
_INSTRUCTION = re.compile(
    r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.\w+)*)", re.M
)
_WIDE = frozenset({"LDG", "LDGSTS", "LDS", "STG", "STS", "LDL", "STL"})
"""Opcodes whose width counts; the others are told by their first word alone."""
_WIDTHS = ("128", "64", "U16", "S16", "U8", "S8")


@dataclass(frozen=True)
class Resources:
    """What one launch of a function needs of a multiprocessor, each thread."""

    registers: int
    frame_bytes: int
    """Local memory for its stack: spilled registers, and arrays that are indexed at run time."""


def resources(cubin: bytes) -> dict[str, Resources]:
    """Registers and stack of each function.

    Raises:
        UsageError: no cubin, or one whose tables lead outside of it.
    """
    try:
        return _resources(cubin)
    except (struct.error, IndexError, ValueError) as error:
        raise UsageError(f"This is no whole cubin: {error}.", "Compile the kernel anew.") from None


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    body: bytes


def _resources(cubin: bytes) -> dict[str, Resources]:
    sections = _sections(cubin)
    functions = next((_functions(sections, s) for s in sections if s.kind == _SYMBOLS), {})
    values: dict[int, dict[str, int]] = {_REGISTERS: {}, _FRAME: {}}
    for section in sections:
        if section.name != ".nv.info":
            continue
        for kind, body in _records(section.body):
            if kind in values:
                symbol, value = struct.unpack_from("<II", body)
                values[kind][functions.get(symbol, "")] = value
    registers, frames = values[_REGISTERS], values[_FRAME]
    return {name: Resources(registers[name], frames.get(name, 0)) for name in registers if name}


def _sections(cubin: bytes) -> list[_Section]:
    if cubin[:6] != _MAGIC:
        raise ValueError("it does not begin as a 64-bit ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    texts = _body(cubin, heads[names])
    return [_Section(_text(texts, head[0]), head[1], _body(cubin, head)) for head in heads]


def _body(cubin: bytes, head: tuple[int, ...]) -> bytes:
    kind, offset, size = head[1], head[4], head[5]
    if kind == 8:  # a section without contents in the file, as shared memory's
        return b""
    if offset + size > len(cubin):
        raise ValueError("a section ends after the file")
    return cubin[offset : offset + size]


def _text(texts: bytes, offset: int) -> str:
    return texts[offset : texts.index(b"\0", offset)].decode("ascii", "replace")


def _functions(sections: list[_Section], symbols: _Section) -> dict[int, str]:
    texts = next((s.body for s in sections if s.name == ".strtab"), b"")
    found = {}
    for index in range(len(symbols.body) // 24):
        name, info = struct.unpack_from("<IB", symbols.body, index * 24)
        if info & 15 == _FUNCTION:
            found[index] = _text(texts, name)
    return found


def _records(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, kind, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            if at + size > len(info):
                raise ValueError("a record ends after its section")
            yield kind, info[at : at + size]
            at += size


def disassemble(cubin: bytes, nvdisasm: Path) -> str:
    """SASS of a cubin, by NVIDIA's own program."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run(
            [str(nvdisasm), "-c", str(file)], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise UsageError(f"nvdisasm failed: {done.stderr.strip()[:200]}", "Compile it anew.")
    return done.stdout


def instructions(sass: str) -> dict[str, int]:
    """How many of each opcode stand in a listing, loads and stores by width: `LDG.128`, `LDG.32`.

    Each counts once, however often a loop runs it.
    """
    counts: Counter[str] = Counter()
    for opcode, modifiers in _INSTRUCTION.findall(sass):
        counts[_class(opcode, modifiers.split(".")[1:])] += 1
    return dict(sorted(counts.items()))


def _class(opcode: str, modifiers: list[str]) -> str:
    if opcode not in _WIDE:
        return opcode
    width = next((width for width in _WIDTHS if width in modifiers), "32")
    return f"{opcode}.{width.lstrip('US')}"


_LABEL = re.compile(r"^(\.L_x_\d+):", re.M)
_BACK = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")


def loop_instructions(sass: str) -> dict[str, int]:
    """As `instructions`, of what stands inside a loop: between a label and a jump back to it."""
    lines = sass.splitlines()
    labels = {found[1]: i for i, line in enumerate(lines) if (found := _LABEL.match(line))}
    inside: set[int] = set()
    for i, line in enumerate(lines):
        jump = _BACK.search(line)
        start = labels.get(jump[1], i) if jump else i
        if start < i - 1:  # the jump to itself at a kernel's end is no loop
            inside.update(range(start, i + 1))
    return instructions("\n".join(lines[i] for i in sorted(inside)))
