"""Plots of figures: what stands beside other tools in one run, rates by unit, cost by number of hosts.

    python bench/plots.py FOLDER

draws the figures of ``FOLDER/figures.json`` again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

OF_OTHERS = ("of loky", "of xargs", "of submit", "of threads")
"""Units of ratios to another tool."""
SIMULATED = "schedule"
"""The script whose ratios are those of simulated runs."""
BY_HOSTS = "scale.cpu_us_per_task_"
OTHERS = ("pool", "imap", "joblib", "ray", "dask", "xargs", "loky", "pipe", "shared", "bare")
"""Words in the names of figures that were measured with something else than gspc-trio."""
ROW_INCH, WIDTH_INCH = 0.24, 9.0
OURS_COLOUR, OTHERS_COLOUR = "#3b6ea8", "#b7b7b7"


def is_other(name: str) -> bool:
    """Say whether something else than gspc-trio was measured."""
    return "_vs_" not in name and any(word in name.partition(".")[2].split("_") for word in OTHERS)


def rows(axes: Any, values: Mapping[str, float]) -> None:
    """Give each value a row with its name and its number, the first one on top."""
    for number, value in enumerate(values.values()):
        text = f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
        axes.annotate(text, (value, number), (5, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(values)), list(values))
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(False)


def compared(figures: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw what is a ratio to another tool, or to a bare measure, that took turns with ours."""
    values: dict[str, float] = {}
    for it in figures:
        name, unit = str(it["name"]), str(it["unit"])
        if unit in OF_OTHERS or (it["script"] != SIMULATED and ("_vs_" in name or unit == "x")):
            values[f"{name} ({unit})" if unit in OF_OTHERS else name] = float(it["value"])
    figure = Figure(figsize=(WIDTH_INCH, 1.2 + ROW_INCH * len(values)), layout="constrained")
    axes = figure.subplots()
    axes.hlines(range(len(values)), 1, list(values.values()), color=OTHERS_COLOUR)
    axes.plot(list(values.values()), range(len(values)), "o", color=OURS_COLOUR)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    rows(axes, values)
    axes.set_xlabel("times the other one")
    return figure


def rates(figures: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw rates, each unit with an axis of its own."""
    units: dict[str, dict[str, float]] = {}
    for it in figures:
        if str(it["unit"]).endswith("/s") and it["value"]:
            units.setdefault(str(it["unit"]), {})[str(it["name"])] = float(it["value"])
    heights = [len(values) + 3 for values in units.values()]
    figure = Figure(figsize=(WIDTH_INCH, ROW_INCH * sum(heights)), layout="constrained")
    panels = figure.subplots(len(units), height_ratios=heights, squeeze=False).flat
    for axes, (unit, values) in zip(panels, units.items(), strict=True):
        colours = [OTHERS_COLOUR if is_other(name) else OURS_COLOUR for name in values]
        axes.barh(range(len(values)), list(values.values()), color=colours, height=0.7)
        axes.margins(x=0.1)
        rows(axes, values)
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.set_xlabel(unit)
    return figure


def hosts(figures: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw what a task costs scheduler and resource manager, by number of hosts."""
    found = {str(it["name"]).removeprefix(BY_HOSTS): float(it["value"]) for it in figures}
    numbers = sorted(int(name) for name in found if name.isdigit())
    figure = Figure(figsize=(WIDTH_INCH, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(numbers, [found[str(number)] for number in numbers], marker="o", color=OURS_COLOUR)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hosts of 100 cores")
    axes.set_ylabel("CPU time of a task, us")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


PLOTS = (
    ("compared.svg", "Beside other tools, in turns in one run", compared),
    ("rates.svg", "Rates; grey is what was measured with something else", rates),
    ("hosts.svg", "CPU time of a task in scheduler and resource manager", hosts),
)


def draw(folder: Path, figures: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Write the plots to a folder, and return the file name and the title of each."""
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gspc-trio", "font.size": 8}):
        for name, title, plot in PLOTS:
            figure = plot(figures)
            figure.suptitle(title)
            figure.savefig(folder / name, format="svg", metadata={"Date": None, "Creator": None})
    return [(name, title) for name, title, _ in PLOTS]


if __name__ == "__main__":
    draw(Path(sys.argv[1]), json.loads((Path(sys.argv[1]) / "figures.json").read_text()))
