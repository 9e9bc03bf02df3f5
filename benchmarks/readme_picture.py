"""Draw the README's picture: the terminal report of the shipped two_bmms recording, as SVG.

python benchmarks/readme_picture.py [--output docs/img/two_bmms.svg]
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kernel_compass.api import diagnose_profiles
from kernel_compass.profiling.recorded import recorded_profiles
from kernel_compass.report.formats import Format
from kernel_compass.report.render import render

WIDTH = 104


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/img/two_bmms.svg"))
    args = parser.parse_args()
    report = diagnose_profiles(recorded_profiles("two_bmms"))
    sources = tuple(
        dataclasses.replace(s, path=Path(s.path).name if s.path else None) for s in report.sources
    )
    report = dataclasses.replace(report, sources=sources)
    text = render(report, Format.TERMINAL, WIDTH, color=True)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    picture = console.export_svg(title="kernel-compass profile two_bmms.py", unique_id="two-bmms")
    # Local fonts only: a picture should not fetch anything.
    picture = re.sub(r'\s*url\("https://[^)]*\) format\("[^"]*"\)[,;]', "", picture)
    picture = re.sub(r'src: local\("([^"]*)"\),', r'src: local("\1");', picture)
    args.output.write_text(picture)
    print(args.output)


if __name__ == "__main__":
    main()
