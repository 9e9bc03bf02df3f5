"""What a user writes for a shape, a list of batch sizes, an error budget."""

from __future__ import annotations

import re

from kernel_compass.errors import UsageError, shortened
from kernel_compass.records.shape_texts import MAX_BYTES, MAX_DIMENSION, workload_of

__all__ = ["MAX_BYTES", "MAX_DIMENSION", "budget_pct_of", "tokens_of", "workload_of"]


def tokens_of(text: str) -> tuple[int, ...]:
    """Batch sizes, e.g. `1,16,64`; each once.

    Raises:
        UsageError: not a list of whole numbers in range.
    """
    words = [word.strip() for word in text.split(",")]
    good = all(re.fullmatch(r"[0-9]{1,8}", w) and 1 <= int(w) <= 1 << 20 for w in words)
    if not good:
        found = f"--tokens {shortened(text)} is no list of batch sizes."
        raise UsageError(found, f"Write for example --tokens 1,16,64; each 1 to {1 << 20:,}.")
    return tuple(dict.fromkeys(map(int, words)))


def budget_pct_of(text: str) -> float:
    """An error budget in percent, e.g. `3%`.

    Raises:
        UsageError: no percentage between 0 and 100. A bare number is refused: 0.03 could be either.
    """
    matched = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\s*", text)
    if matched is None:
        found = f"--budget {shortened(text)} is no percentage."
        raise UsageError(found, "Write for example --budget 3%.")
    value = float(matched[1])
    if not 0 < value <= 100:
        found = f"--budget {shortened(text)} is out of range."
        raise UsageError(found, "Name more than 0 % and up to 100 %.")
    return value
