"""Names cut to a width so that they still differ where they differed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

ELLIPSIS = "…"
_HEAD = 5
"""Fewest characters kept of a function's own name when its arguments are long."""


def fit_all(texts: Mapping[str, str], rooms: Mapping[str, int]) -> dict[str, str]:
    """Texts cut to the room each has, no two alike that were not.

    Args:
        texts: key -> text.
        rooms: key -> most characters of that text.

    Returns:
        Key -> the text, cut where it had to be.
    """
    cut = {key: cut_name(text, rooms[key]) for key, text in texts.items()}
    clashing = {text for text, n in Counter(cut.values()).items() if n > 1}
    for text in sorted(clashing):
        keys = [key for key in texts if cut[key] == text]
        room = min(rooms[key] for key in keys)
        for key, form in zip(keys, _cut_around([texts[k] for k in keys], room), strict=True):
            cut[key] = form
    return _numbered(cut, texts, rooms)


def cut_name(text: str, room: int) -> str:
    """One name in the room it has: the arguments in `<>` are kept before the name itself."""
    if len(text) <= room:
        return text
    head, bracket, inside = text.partition("<")
    if bracket and _HEAD + 2 + len(inside) <= room:
        return head[: room - 2 - len(inside)] + ELLIPSIS + bracket + inside
    if bracket and room > 2 * _HEAD + 4 and len(head) > _HEAD:
        return head[:_HEAD] + ELLIPSIS + bracket + _cut_middle(inside, room - _HEAD - 2, tail=0.5)
    return _cut_middle(text, room, tail=0.35)


def _cut_middle(text: str, room: int, tail: float) -> str:
    """Without its middle; `tail` is the share of the room that the end gets."""
    if len(text) <= room:
        return text
    end = int((room - 1) * tail)
    return text[: room - 1 - end] + ELLIPSIS + text[len(text) - end :]


def _cut_around(texts: list[str], room: int) -> list[str]:
    """The beginning, then everything from where the texts begin to differ."""
    shared = next(
        (i for i, chars in enumerate(zip(*texts, strict=False)) if len(set(chars)) > 1),
        min(map(len, texts)),
    )
    space = room - 1
    head = min(shared, max(space - max(len(t) - shared for t in texts), space // 3))
    return [_cut_end(t[:head] + ELLIPSIS + t[shared:] if head < shared else t, room) for t in texts]


def _cut_end(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + ELLIPSIS


def _numbered(
    cut: dict[str, str], texts: Mapping[str, str], rooms: Mapping[str, int]
) -> dict[str, str]:
    """Last resort: what is still alike gets a number."""
    owner: dict[str, str] = {}
    result = {}
    for key, form in cut.items():
        mine, n = form, 1
        while owner.setdefault(mine, texts[key]) != texts[key]:
            n += 1
            mine = form[: rooms[key] - len(f"~{n}")] + f"~{n}"
        result[key] = mine
    return result
