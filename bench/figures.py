"""What the benchmarks share: how figures are printed, and the memory of a process tree."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import gspc_trio


class Figures:
    """Prints figures as they come: a line of JSON each with ``--json``, a line of text otherwise."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def add(self, name: str, value: float, unit: str) -> None:
        """Print one figure."""
        value = float(f"{value:.4g}")
        if self.as_json:
            print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)
        else:
            print(f"{name:<32}{value:>14g} {unit}", flush=True)


def options_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has: ``--json`` and ``--small``."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=style)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure")
    parser.add_argument("--small", action="store_true", help="see in seconds that the benchmark works")
    return parser


def package_folder() -> Path:
    """Return where the modules of the package lie that is measured."""
    return Path(gspc_trio.__file__).parent


def descendants(root: int) -> list[int]:
    """Return the process ids of a tree, its root first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_s(pids: Iterable[int], *, with_children: bool = True) -> float:
    """Return the CPU seconds of these processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11 : 15 if with_children else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """Return the CPU seconds of this process and all below it, of those that have ended, too."""
    return cpu_s(descendants(os.getpid()))


def tree_pss_mib(root: int) -> float:
    """Return the proportional set size of a process tree in MiB: shared pages count once."""
    kib = 0
    for pid in descendants(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kib / 1024


def own_pss_mib() -> float:
    """Return the proportional set size of this process and all below it in MiB."""
    return tree_pss_mib(os.getpid())
