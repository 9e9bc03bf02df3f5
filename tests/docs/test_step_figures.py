"""What the page about steps says was foretold is what the predictions say."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_predictions_is_the_kept_one():
    known = json.loads((ROOT / "benchmarks/steps/predictions.json").read_text())["programs"]
    text = (ROOT / "docs/step_loop.md").read_text()
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) us, (\w+|in a graph) \| ([\d.]+)x.*?\| ([\d.]+)x \|", text, re.M
    )
    assert {row[0] for row in rows} == set(known)
    for name, now_us, _, tight, loose in rows:
        one = known[name]
        assert int(now_us) == round(one["now_us"]), name
        ratios = [one["by_budget"][budget]["ratio"] for budget in ("1", "5")]
        assert [f"{ratio:.2f}" for ratio in ratios] == [tight, loose], name
