"""Word frequencies of all text files under a directory, by map and reduce.

gspc-jobserver run examples/wordcount.py --set path=DIR

Without a directory the words of Python's standard library are counted, not those of packages installed in it.
"""

import os
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gspc_trio import Workflow, map_reduce

STDLIB = Path(sysconfig.get_path("stdlib")).resolve()
PACKAGES = ("site-packages", "dist-packages")  # folders of the standard library that are no part of it
SUFFIXES = (".py", ".txt", ".md", ".rst")
WORD = re.compile(rb"[a-z]+")  # in bytes: nothing but ASCII letters counts, whatever the rest of the file is
READ_BYTES = 1 << 20
TASK_BYTES = 1 << 20
FILE_BYTES_MIN = 4096  # opening a file costs as much as reading this


def count_words(files: list[str]) -> dict[str, int]:
    """Map: count the words of some files."""
    counts: Counter[bytes] = Counter()
    for name in files:
        with open(name, "rb") as file:
            while lines := file.readlines(READ_BYTES):
                counts.update(WORD.findall(b"".join(lines).lower()))
    return {word.decode(): number for word, number in counts.items()}


def add_counts(parts: list[dict[str, int]]) -> dict[str, int]:
    """Reduce: add the counts of several tasks."""
    total: Counter[str] = Counter()
    for counts in parts:
        total.update(counts)
    return dict(total)


def find_files(path: Path) -> Iterator[str]:
    """Return the text files under a directory, and say which of them cannot be read."""
    for folder, folders, names in os.walk(path, onerror=lambda error: skip(error.filename)):
        out = PACKAGES if Path(folder) == STDLIB == path else ()
        folders[:] = sorted(name for name in folders if name not in out)
        for name in sorted(names):
            file = os.path.join(folder, name)
            if name.endswith(SUFFIXES) and os.path.isfile(file):  # no dangling link, no pipe
                if os.access(file, os.R_OK):
                    yield file
                else:
                    skip(file)


def skip(name: str) -> None:
    print(f"wordcount: {name} cannot be read and is left out", file=sys.stderr)


def split(files: Iterable[str]) -> Iterator[list[str]]:
    """Return the files in parts, each enough work for a task."""
    part, size_bytes = [], 0
    for file in files:
        part.append(file)
        size_bytes += max(os.path.getsize(file), FILE_BYTES_MIN)
        if size_bytes >= TASK_BYTES:
            yield part
            part, size_bytes = [], 0
    if part:
        yield part


def workflow(path: Path = STDLIB) -> Workflow:
    """Count the words of all text files under ``path``."""
    if not path.is_dir():
        raise ValueError(f"there is no directory {path}; say which one to read with --set path=DIR")
    parts = list(split(find_files(path.resolve())))

    def report(outputs: Mapping[str, list[dict[str, int]]]) -> None:
        for word, number in Counter(outputs["counts"][0]).most_common(20):
            print(f"{number:>10,}  {word}")
        print(f"{sum(map(len, parts)):,} files")

    net = map_reduce(count_words, add_counts, initial={}, name="wordcount", output_port="counts")
    return Workflow(net, {"items": parts}, report)
