"""Print a `.ncu-rep` report as JSON lines; run in a process of its own.

The report is read by NVIDIA's native library, which a damaged file can crash or stall: the
caller must survive that. Standard input holds a JSON list of the metric names wanted. One line
per launch: `name`, `workload`, `metrics` (name, unit, value) and `rules`.

    python report_dump.py REPORT < names.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

MISSING_PACKAGE = 3
"""Exit code where `ncu_report` cannot be imported."""

UNREADABLE = 4
"""Exit code where it refuses the file."""


def main() -> int:
    """Read the report named on the command line."""
    wanted = set(json.load(sys.stdin))
    try:
        import ncu_report
    except ImportError:
        return MISSING_PACKAGE
    try:
        context = ncu_report.load_report(sys.argv[1])
        ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    except Exception as error:  # the library raises bare exceptions of its own
        sys.stderr.write(f"{error}\n")
        return UNREADABLE
    for one in ranges:
        for index in range(one.num_actions()):
            action = one.action_by_idx(index)
            sys.stdout.write(json.dumps(_launch(action, wanted)) + "\n")
    return 0


def _launch(action: Any, wanted: set[str]) -> dict[str, Any]:
    metrics = []
    for name in action.metric_names():
        if name not in wanted:
            continue
        metric = action.metric_by_name(name)
        # without this check a metric that exists as instances only reads as 0
        if metric is not None and metric.has_value():
            metrics.append((name, metric.unit(), metric.value()))
        else:
            metrics.append((name, "", None))
    return {
        "name": action.name(action.NameBase_DEMANGLED),
        "workload": int(action.workload_type()),
        "metrics": metrics,
        "rules": [_rule(rule) for rule in _rules(action)],
    }


def _rules(action: Any) -> list[dict[str, Any]]:
    try:
        return list(action.rule_results_as_dicts())
    except Exception:  # older readers lack it; rules are an extra
        return []


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    message = rule.get("rule_message") or {}
    estimate = rule.get("speedup_estimation") or {}
    return {
        "name": rule.get("rule_identifier", ""),
        "kind": int(message.get("type", 0)),
        "text": message.get("message", ""),
        "speedup": estimate.get("speedup"),
    }


if __name__ == "__main__":
    sys.exit(main())
