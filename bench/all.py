"""Every benchmark, one after the other; a table and plots of what they found.

    python bench/all.py [--small] [--output FOLDER] [NAME...]

``NAME`` is that of a script of this folder, without ``.py``, or of a package; by default all are run. With
``--small`` it only sees that each of them works, as many at once as there are CPUs. ``FOLDER`` gets
``figures.json``, ``figures.md`` and the plots of ``plots.py``, for which matplotlib is needed; the figures of
scripts that were not run stay as they are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"all", "contained_root", "figures", "peers_adapter", "plots"}
PACKAGES = {path.parent.name for path in HERE.glob("*/__main__.py")}
NAMES = sorted({path.stem for path in HERE.glob("*.py")} - NOT_BENCHMARKS | PACKAGES)
TIMEOUT_S = 1800


def run(name: str, small: bool) -> list[dict[str, object]]:
    """Return the figures of one script, each with its day.

    Raises:
        SystemExit: it failed; its errors have been printed.
    """
    script = ["-m", f"{HERE.name}.{name}"] if name in PACKAGES else [str(HERE / f"{name}.py")]
    command = [sys.executable, *script, "--json", *(["--small"] if small else [])]
    begun = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, cwd=HERE.parent, check=False
    )
    if done.returncode:
        sys.exit(f"{name} failed with status {done.returncode}")
    day = {"script": name, "day": time.strftime("%Y-%m-%d")}
    figures = [json.loads(line) | day for line in done.stdout.splitlines()]
    print(f"{name:<20}{len(figures):>3} figures{time.perf_counter() - begun:>8.1f} s", flush=True)
    return figures


def run_all(names: list[str], small: bool) -> Iterator[list[dict[str, object]]]:
    """Yield the figures of each script, in the order of the names.

    Raises:
        SystemExit: one failed; what has not begun does not begin.
    """
    if not small:  # what is measured has the machine to itself
        yield from (run(name, small) for name in names)
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            yield from pool.map(run, names, repeat(small))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def table(figures: list[dict[str, object]]) -> str:
    """Return the figures as a table in Markdown."""
    system = (
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}"
    )
    lines = [f"{system}.", "", "| figure | value | unit | measured on |", "|---|---:|---|---|"]
    lines += [f"| `{it['name']}` | {it['value']:g} | {it['unit']} | {it['day']} |" for it in figures]
    return "\n".join(lines) + "\n"


def write(folder: Path, figures: list[dict[str, object]]) -> None:
    """Write the table and the plots; what is there of other scripts stays."""
    import plots  # needs matplotlib, which only who writes plots has

    folder.mkdir(parents=True, exist_ok=True)
    store = folder / "figures.json"
    ran = {it["script"] for it in figures}
    before = json.loads(store.read_text()) if store.exists() else []
    figures = [it for it in before if it["script"] in NAMES and it["script"] not in ran] + figures
    figures.sort(key=lambda it: str(it["script"]))  # within a script as they came
    store.write_text("[\n" + ",\n".join(map(json.dumps, figures)) + "\n]\n")
    pictures = "\n".join(f"![{title}]({name})\n" for name, title in plots.draw(folder, figures))
    (folder / "figures.md").write_text(f"# Figures\n\n{table(figures)}\n{pictures}")


def main() -> None:
    """Run them."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--small", action="store_true", help="see that they work")
    parser.add_argument("--output", type=Path, help="folder for the table and the plots")
    parser.add_argument("names", metavar="NAME", nargs="*", help="which; all by default")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"there is no {name}; there are {', '.join(NAMES)}")
    figures = [it for found in run_all(options.names or NAMES, options.small) for it in found]
    print(table(figures))
    if options.output is not None:
        write(options.output, figures)


if __name__ == "__main__":
    main()
