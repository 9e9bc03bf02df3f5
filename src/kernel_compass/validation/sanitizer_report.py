"""What compute-sanitizer printed: its findings, and whether it came to its end.

memcheck sees accesses outside of allocations and misaligned ones; racecheck sees races on shared
memory alone, and none on global memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = "========="
_SUMMARY = re.compile(rf"^{PREFIX} (?:ERROR|RACECHECK) SUMMARY: (\d+) ", re.MULTILINE)
_HEADS = re.compile(
    r"(Invalid |Misaligned |Error: |Warning: |Program hit |Fatal UVM|Out-of-range|Barrier error"
    r"|Unused memory|Uninitialized|Internal [Ss]anitizer|Target application|LaunchCheck"
    r"|Malloc/Free error|Leaked )"
)
_DETAIL = re.compile(
    r"^\s+(at |by thread|Address |and is |and (Read|Write) access|Access at|Access to)"
)
_PYTHON = re.compile(r"Target application (returned an error|terminated before)")
MOST_FINDINGS = 20


@dataclass(frozen=True)
class SanitizerReport:
    """One tool's report."""

    tool: str
    """`memcheck` or `racecheck`."""
    errors: int | None
    """As its summary counts them; `None` = it printed none: it did not come to its end."""
    findings: tuple[str, ...]
    """The first of them, a line each."""
    application_failed: bool = False
    """Whether what it ran ended with an error of its own."""

    @property
    def is_clean(self) -> bool:
        """Whether it came to its end and found nothing."""
        return self.errors == 0 and not self.application_failed


def parsed(text: str, tool: str) -> SanitizerReport:
    """The report in what compute-sanitizer printed, whatever else the program printed between."""
    summaries = _SUMMARY.findall(text)
    found: list[str] = []
    open_finding = False
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        body = line.removeprefix(PREFIX)
        if _HEADS.match(body.strip()) and not body.startswith("     "):
            found.append(body.strip())
            open_finding = True
        elif open_finding and _DETAIL.match(body):
            found[-1] += f"; {body.strip()}"
        elif body.strip().startswith("Saved host backtrace") or not body.strip():
            open_finding = False
    errors = int(summaries[-1]) if summaries else None
    own = tuple(one for one in found if not _PYTHON.match(one))
    return SanitizerReport(tool, errors, own[:MOST_FINDINGS], len(own) < len(found))
