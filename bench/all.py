"""Every benchmark, one after the other; a table and a plot of what they found.

    python bench/all.py [--small] [--output FOLDER]

With ``--small`` it only sees that each of them works. ``FOLDER`` gets ``figures.md`` and ``figures.svg``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"all.py", "figures.py", "peers_adapter.py"}
TIMEOUT_S = 1800
ROW, LEFT, WIDTH = 18, 260, 420
"""Pixels of the plot: height of a row, where bars begin, length of the longest."""


def run(script: Path, small: bool) -> list[dict[str, object]]:
    """Return the figures of one script.

    Raises:
        SystemExit: it failed; its errors have been printed.
    """
    command = [sys.executable, str(script), "--json", *(["--small"] if small else [])]
    begun = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        sys.exit(f"{script.name} failed with status {done.returncode}")
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    print(f"{script.name:<20}{len(figures):>3} figures{time.perf_counter() - begun:>8.1f} s", flush=True)
    return figures


def table(figures: list[dict[str, object]]) -> str:
    """Return the figures as a table in Markdown."""
    system = (
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}"
    )
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {system}.",
        "",
        "| figure | value | unit |",
        "|---|---:|---|",
    ]
    lines += [f"| `{it['name']}` | {it['value']:g} | {it['unit']} |" for it in figures]
    return "\n".join(lines) + "\n"


def plot(figures: list[dict[str, object]]) -> str:
    """Return a bar for each rate, on a logarithmic scale, as SVG."""
    rates = [(str(it["name"]), float(str(it["value"]))) for it in figures if str(it["unit"]).endswith("/s")]
    rates = [(name, value) for name, value in rates if value >= 1]
    scale = WIDTH / max((math.log10(value) for _, value in rates), default=1)
    rows = []
    for number, (name, value) in enumerate(rates):
        top, length = number * ROW, max(1.0, math.log10(value) * scale)
        rows.append(f'<text x="{LEFT - 6}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
        rows.append(
            f'<rect x="{LEFT}" y="{top + 3}" width="{length:.0f}" height="{ROW - 5}" fill="#4a7ebb"/>'
        )
        rows.append(f'<text x="{LEFT + length + 5:.0f}" y="{top + 13}">{value:,.0f}</text>')
    size = f'width="{LEFT + WIDTH + 90}" height="{len(rates) * ROW + 4}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(rows) + "\n</svg>\n"


def main() -> None:
    """Run them all."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--small", action="store_true", help="see that they work, in under a minute")
    parser.add_argument("--output", type=Path, help="folder for the table and the plot")
    options = parser.parse_args()
    figures: list[dict[str, object]] = []
    for script in sorted(HERE.glob("*.py")):
        if script.name not in NOT_BENCHMARKS:
            figures += run(script, options.small)
    print(table(figures))
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "figures.md").write_text(f"# Figures\n\n{table(figures)}\n![rates](figures.svg)\n")
        (options.output / "figures.svg").write_text(plot(figures))


if __name__ == "__main__":
    main()
