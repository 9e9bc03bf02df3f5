"""What ncu's own rules say, for the rules that were checked.

A details page carries no stall, pipe or sector counters, but it carries the text of ncu's rules,
and these name the same numbers. Only rules whose numbers agree with the raw counters of the same
launches (tests compare both pages of the recorded captures) are read; the advice and the speedup
estimates in the texts are not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from kernel_compass.records.profile import RuleResult

_PIPE_WORDS = {
    "tensor": "tensor",
    "tc": "tc",
    "fma": "fma",
    "fp64": "fp64",
    "alu": "alu",
    "xu": "xu",
    "lsu": "lsu",
    "fp16": "fp16",
    "uniform": "uniform",
    "adu": "adu",
    "cbu": "cbu",
    "tex": "tex",
    "tma": "tma",
}

_STALL_WORDS = (
    ("scoreboard dependency on a l1tex", "long_scoreboard"),
    ("scoreboard dependency on an mio", "short_scoreboard"),
    ("scoreboard dependency on a mio", "short_scoreboard"),
    ("sibling warps at a cta barrier", "barrier"),
    ("fixed latency execution dependency", "wait"),
    ("for the execution pipe to be available", "math_pipe_throttle"),
    ("execution pipe to be available", "math_pipe_throttle"),
    ("mio (memory input/output) instruction queue", "mio_throttle"),
    ("local/global instruction queue", "lg_throttle"),
    ("l1 instruction queue for texture", "tex_throttle"),
    ("memory barrier", "membar"),
    ("instruction cache miss", "no_instruction"),
    ("immediate constant", "imc_miss"),
    ("branch target to be computed", "branch_resolving"),
    ("sleeping", "sleeping"),
    ("gmma", "gmma"),
    ("dispatch stall", "dispatch_stall"),
)

_NUMBER = r"(\d+(?:[.,]\d+)?)"


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def _high_pipe(text: str) -> dict[str, float]:
    match = re.search(
        rf"^(\w+)(?: \([^)]*\))? is the highest-utilized pipeline \({_NUMBER}%\)(.{{0,40}})", text
    )
    if not match:
        return {}
    basis = "_active" if "active cycles" in match.group(3) else ""
    word = match.group(1).lower()
    if word == "shared":
        word = "tensor" if "dominated by its Tensor" in text else "fp64"
    pipe = _PIPE_WORDS.get(word)
    return {f"rule_pipe_{pipe}{basis}_pct": _number(match.group(2))} if pipe else {}


def _cpi_stall(text: str) -> dict[str, float]:
    match = re.search(
        rf"spends {_NUMBER} cycles being stalled (.*?)\. .*?"
        rf"represents about {_NUMBER}% of the total average",
        text,
        re.DOTALL,
    )
    if not match:
        return {}
    where = match.group(2).lower()
    for words, reason in _STALL_WORDS:
        if words in where:
            return {f"stall_{reason}_share_pct": _number(match.group(3))}
    return {}


def _uncoalesced(text: str) -> dict[str, float]:
    match = re.search(r"(\d+) excessive sectors \(\d+% of the total (\d+) sectors\)", text)
    if not match:
        return {}
    excess, total = int(match.group(1)), int(match.group(2))
    return {
        "global_excess_pct": 100.0 * excess / total if total else 0.0,
        "global_sector_bytes": 32.0 * total,
    }


def _shared_conflicts(text: str) -> dict[str, float]:
    match = re.search(
        r"results in (\d+) bank conflicts.*?overall (\d+) wavefronts for shared (\w+)",
        text,
        re.DOTALL,
    )
    if not match:
        return {}
    conflicts, total = int(match.group(1)), int(match.group(2))
    return {"shared_excess_pct": 100.0 * conflicts / total if total else 0.0}


def _excessive_shared(text: str) -> dict[str, float]:
    match = re.search(r"(\d+) excessive wavefronts \(\d+% of the total (\d+) wavefronts\)", text)
    if not match:
        return {}
    excess, total = int(match.group(1)), int(match.group(2))
    return {"shared_excess_pct": 100.0 * excess / total if total else 0.0}


_READERS: dict[str, Callable[[str], dict[str, float]]] = {
    "HighPipeUtilization": _high_pipe,
    "CPIStall": _cpi_stall,
    "UncoalescedGlobalAccess": _uncoalesced,
    "SharedMemoryConflicts": _shared_conflicts,
    "UncoalescedSharedAccess": _excessive_shared,
}
"""Rules whose numbers were checked against raw counters."""


def rule_quantities(rules: Iterable[RuleResult]) -> dict[str, float]:
    """Quantities that the checked rules state, the largest where a rule fired several times."""
    found: dict[str, float] = {}
    for rule in rules:
        reader = _READERS.get(rule.name)
        for key, value in (reader(rule.text) if reader else {}).items():
            found[key] = max(value, found.get(key, value))
    return found
