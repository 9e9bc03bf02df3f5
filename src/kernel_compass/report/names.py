"""Kernel names shortened to what tells them apart within one report.

`void at::native::vectorized_elementwise_kernel<4, at::CUDAFunctor_add<float>, ...>(int, ...)` is
`vectorized_elementwise_kernel<CUDAFunctor_add>`, and beside one with 8 in place of 4 both show
that number. Kernels of one name but different launches show their grid, then their block.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from kernel_compass.records.profile import Dim3, KernelProfile
from kernel_compass.report.cxx_names import Node, parse
from kernel_compass.report.fitting import fit_all

_SCALARS = frozenset(
    """bool char short int long float double half void __half __nv_bfloat16 BFloat16 Half half_t
    bfloat16_t tuple array vector Array C Int _0 _1 _2 Shape Layout Stride integral_constant
    integer_sequence""".split()  # noqa: SIM905
)
"""Identifiers that say nothing about what a kernel does."""


def _parsed(name: str) -> Node:
    """The name's parts; a name nested too deeply to read is taken by its beginning."""
    try:
        return parse(name)
    except RecursionError:
        return parse(name[:_READABLE])


_READABLE = 160


def short_names(kernels: Sequence[KernelProfile], width: int | None = None) -> list[str]:
    """One short name a kernel, no two alike unless the kernels are.

    Args:
        kernels: all the kernels of one report.
        width: most characters a name may have; `None` = as many as it needs.

    Returns:
        The names, in the kernels' order.
    """
    suffixes = _launch_suffixes(kernels)
    nodes = {kernel.name: _parsed(kernel.name) for kernel in kernels}
    short = _tell_apart(list(nodes.values()))
    bodies = {name: short[node.text] for name, node in nodes.items()}
    if width is not None:
        rooms: dict[str, int] = {}
        for kernel, suffix in zip(kernels, suffixes, strict=True):
            rooms[kernel.name] = min(rooms.get(kernel.name, width), max(width - len(suffix), 4))
        bodies = fit_all(bodies, rooms)
    return [bodies[kernel.name] + suffix for kernel, suffix in zip(kernels, suffixes, strict=True)]


def dim_text(dim: Dim3 | None) -> str:
    """A grid or block without trailing ones: `128`, `2x66`, `1x8x16`."""
    if dim is None:
        return "?"
    parts = list(dim)
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return "x".join(map(str, parts))


def _launch_suffixes(kernels: Sequence[KernelProfile]) -> list[str]:
    """What separates kernels of one name: grid, block, GPU, in this order."""
    parts: tuple[tuple[str, Callable[[KernelProfile], Hashable]], ...] = (
        ("grid", lambda k: k.grid),
        ("block", lambda k: k.block),
        ("gpu", lambda k: k.device),
    )
    same: dict[str, list[KernelProfile]] = {}
    for kernel in kernels:
        same.setdefault(kernel.name, []).append(kernel)
    suffixes = []
    for kernel in kernels:
        twins, words = same[kernel.name], []
        for word, part in parts:
            if len(twins) > 1 and len({part(k) for k in twins}) > 1:
                value = part(kernel)
                words.append(f"{word} {dim_text(value) if isinstance(value, tuple) else value}")
                twins = [k for k in twins if part(k) == value]
        suffixes.append(f" ({', '.join(words)})" if words else "")
    return suffixes


def _tell_apart(nodes: Sequence[Node]) -> dict[str, str]:
    """Full text -> the shortest form unique among these nodes."""
    groups: dict[str, dict[str, Node]] = {}
    for node in nodes:
        groups.setdefault(node.ident, {})[node.text] = node
    result: dict[str, str] = {}
    for group in groups.values():
        members = list(group.values())
        result.update(_single(members[0]) if len(members) == 1 else _group(members))
    return result


def _single(node: Node) -> dict[str, str]:
    hint = _hint(node)
    return {node.text: f"{node.ident}<{hint}>" if hint not in ("", node.ident) else node.ident}


def _hint(node: Node) -> str:
    """The innermost operation among the template arguments: `MeanOps`, `silu_kernel`."""
    for arg in node.args:
        if arg.ident in _SCALARS or not arg.ident.isidentifier():
            continue
        return _hint(arg) or arg.ident
    return ""


def _group(members: list[Node]) -> dict[str, str]:
    """Members of one identifier, told apart by as few of their arguments as it takes."""
    count = max(len(node.args) for node in members)
    columns: list[list[str]] = [
        [node.args[i].text if i < len(node.args) else "" for node in members] for i in range(count)
    ]
    extras = ("types", "instance", "scope", "parameters", "text")
    columns += [[str(getattr(node, extra)) for node in members] for extra in extras]
    chosen = _separating(columns)
    words: list[list[str]] = [[] for _ in members]
    for i in (i for i in chosen if i < count):
        for into, word in zip(words, _argument_words(members, i), strict=True):
            into.append(word)
    named = [extras[i - count] for i in chosen if i >= count]
    return {
        node.text: _assemble(node, [word for word in into if word], named)
        for node, into in zip(members, words, strict=True)
    }


def _separating(columns: list[list[str]]) -> list[int]:
    """Indices of columns that separate all rows, each the most useful one left; sorted."""
    chosen: list[int] = []
    rows: list[tuple[str, ...]] = [() for _ in columns[0]]
    while len(set(rows)) < len(rows):
        counts = [len(set(zip(rows, column, strict=True))) for column in columns]
        best = max(range(len(columns)), key=lambda i: (counts[i], -i))
        if counts[best] == len(set(rows)):
            break
        chosen.append(best)
        rows = [(*row, value) for row, value in zip(rows, columns[best], strict=True)]
    return sorted(chosen)


def _argument_words(members: list[Node], index: int) -> list[str]:
    """One argument of each member in short; a wrapper that all share is left out."""
    nodes = [node.args[index] if index < len(node.args) else None for node in members]
    there = [node for node in nodes if node is not None]
    short = _tell_apart(there)
    texts = {node.text: short[node.text] for node in there}
    if len(there) == len(nodes) and len({node.ident for node in there}) == 1:
        wrapper = there[0].ident + "<"
        inner = {key: text[len(wrapper) : -1] for key, text in texts.items()}
        shared = all(text.startswith(wrapper) and text.endswith(">") for text in texts.values())
        if shared and not any(map(_plain, inner.values())):
            texts = inner
    return ["" if node is None else texts[node.text] for node in nodes]


def _plain(word: str) -> bool:
    """Whether a word names no operation: a number, a scalar type."""
    return word in _SCALARS or not (word.isidentifier() or "<" in word)


def _assemble(node: Node, words: list[str], named: list[str]) -> str:
    if "text" in named:
        return node.text
    hint = _hint(node) if words and all(map(_plain, words)) else ""
    inside = [*words, hint] if hint else list(words)
    if "types" in named and node.types:
        inside.append(node.types)
    if "instance" in named and node.instance:
        inside.append(f"#{node.instance}")
    scope = f"{node.scope}::" if "scope" in named and node.scope else ""
    parameters = node.parameters if "parameters" in named else ""
    return f"{scope}{node.ident}{'<' + ', '.join(inside) + '>' if inside else ''}{parameters}"
