"""Demangled C++ kernel names taken apart: identifier, template arguments, what else tells apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_OPEN, _CLOSE = "<([{", ">)]}"
_CAST = re.compile(r"\((?:unsigned |signed )?[A-Za-z_][\w:]*(?: \w+)*\)(?=-?\d)")
_ANONYMOUS = re.compile(r"(?:<unnamed>|^unnamed>|\(anonymous namespace\)|\(anonymous\))::")
_CALL_OPERATOR = re.compile(r"operator ?\(\)(?= ?\()")
_CONST_MEMBER = re.compile(r"\) const(?=::|$)")
_LAMBDA = re.compile(
    r"^[\[{]lambda ?\((?P<types>.*?)\)(?: \(instance (?P<i>\d+)\)|#(?P<n>\d+))?[\]}]$"
)
_CALL = "operator_call"


@dataclass(frozen=True)
class Node:
    """A name, or one argument of it."""

    text: str
    """The whole text; two nodes are the same if it is."""
    ident: str
    """The identifier without return type, namespaces, arguments and parameters."""
    args: tuple[Node, ...] = ()
    """Template arguments."""
    types: str = ""
    """Parameter types of the last lambda inside it: torch's functors differ in nothing else."""
    instance: str = ""
    """Numbers of the lambdas inside it."""
    scope: str = ""
    """Namespaces and enclosing classes."""
    parameters: str = ""
    """The parameter list, with its parentheses."""


def parse(name: str) -> Node:
    """A demangled kernel name taken apart; a name it cannot read is one whole identifier."""
    text = _ANONYMOUS.sub("", name.strip())
    text = _CALL_OPERATOR.sub(_CALL, _CAST.sub("", text))
    text = _CONST_MEMBER.sub(")", text)
    if not _balanced(text):
        return Node(name, name.strip())
    return _node(text, name, function=True)


@lru_cache(maxsize=4096)
def _node(text: str, whole: str, function: bool = False) -> Node:
    segments = _split(_without_return_type(text, function), "::")
    at = _own_segment(segments)
    head, args, parameters = _take_apart(segments[at])
    lambdas = [m for m in map(_LAMBDA.match, segments[at + 1 :]) if m]
    types = _bare(lambdas[-1]["types"]) if lambdas else ""
    return Node(
        text=whole,
        ident=head or text,
        args=tuple(_node(arg, arg) for arg in _split(args, ",") if arg),
        types=types,
        instance=".".join(m["i"] or m["n"] or "0" for m in lambdas),
        scope="::".join(segments[:at]),
        parameters=parameters,
    )


def _own_segment(segments: list[str]) -> int:
    """Index of the segment that names it: the first with parameters, else the last."""
    at = next((i for i, s in enumerate(segments) if "(" in _outside(s, "<>")), len(segments) - 1)
    while at > 0 and segments[at].startswith((_CALL, "[lambda", "{lambda")):
        at -= 1
    return at


def _without_return_type(text: str, function: bool) -> str:
    """Without what stands before the name: only functions have that."""
    call = next((i for i, c, depth in _walk(text) if c == "(" and depth == 0), None)
    if call is None and not (function and text.startswith("void ")):
        return text
    end = len(text) if call is None else call
    blank = max(
        (i for i, c, depth in _walk(text) if c == " " and depth == 0 and i < end), default=-1
    )
    return text[blank + 1 :]


def _take_apart(segment: str) -> tuple[str, str, str]:
    """`f<a, b>(c)` as `f`, `a, b`, `(c)`."""
    left = next((i for i, c, depth in _walk(segment) if c in "<(" and depth == 0), len(segment))
    head, rest = segment[:left].strip(), segment[left:]
    if not rest.startswith("<"):
        return head, "", rest
    right = next(i for i, c, depth in _walk(rest) if c == ">" and depth == 0)
    return head, rest[1:right], rest[right + 1 :].strip()


def _walk(text: str) -> Iterator[tuple[int, str, int]]:
    """Every character with the number of brackets around it (a bracket is outside itself)."""
    depth = 0
    for i, char in enumerate(text):
        if char in _CLOSE and not (char == ">" and text[i - 1 : i] == "-"):
            depth -= 1
        yield i, char, depth
        if char in _OPEN:
            depth += 1


def _balanced(text: str) -> bool:
    closing: list[str] = []
    for i, char in enumerate(text):
        if char in _OPEN:
            closing.append(_CLOSE[_OPEN.index(char)])
        elif char == ">" and text[i - 1 : i] == "-":
            continue
        elif char in _CLOSE and (not closing or closing.pop() != char):
            return False
    return not closing


def _split(text: str, separator: str) -> list[str]:
    """Parts between separators that no bracket encloses."""
    parts, start, size = [], 0, len(separator)
    for i, _, depth in _walk(text):
        if depth == 0 and i >= start and text.startswith(separator, i):
            parts.append(text[start:i].strip())
            start = i + size
    parts.append(text[start:].strip())
    return parts


def _outside(text: str, brackets: str) -> str:
    """The characters that these brackets do not enclose."""
    depth, kept = 0, []
    for char in text:
        depth += char == brackets[0]
        if depth == 0:
            kept.append(char)
        depth -= char == brackets[1]
    return "".join(kept)


def _bare(types: str) -> str:
    """A list of types without namespaces."""
    return re.sub(r"\b\w+::", "", types)
