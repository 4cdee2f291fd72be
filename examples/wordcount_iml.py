"""Word frequencies of a corpus that is loaded once into a memory layer, and mapped where it lies.

python examples/wordcount_iml.py [DIRECTORY [CONNECTION_FILE]]

With the connection file of a running run-time system its hosts do the work.
"""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import trio

from gspc_trio import map_reduce, open_iml, open_job, open_rts

SUFFIXES = (".py", ".txt", ".md", ".rst")
RANGE_BYTES = 1 << 20
DATA_BYTES = 1 << 28


def count_words(text: memoryview) -> dict[str, int]:
    """Map: count the words of a range of the corpus; ``text`` is shared memory, nothing was copied for it."""
    counts = Counter(word.lower() for word in re.findall(rb"[A-Za-z]+", text))
    return {word.decode(): number for word, number in counts.items()}


def add_counts(parts: list[dict[str, int]]) -> dict[str, int]:
    """Reduce: add the counts of several ranges."""
    total: Counter[str] = Counter()
    for counts in parts:
        total.update(counts)
    return dict(total)


def read_corpus(path: Path) -> tuple[bytes, list[tuple[int, int]]]:
    """Return all text files one after another, and ranges of them that end where a file ends."""
    texts, ranges, begin, end = [], [], 0, 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.endswith(SUFFIXES):
                texts.append(Path(folder, name).read_bytes() + b"\n")
                end += len(texts[-1])
                if end - begin >= RANGE_BYTES:
                    ranges.append((begin, end - begin))
                    begin = end
    if end > begin:
        ranges.append((begin, end - begin))
    return b"".join(texts), ranges


async def main(path: Path, connection_file: Path | None = None) -> None:
    """Count and print the ten words that are found most."""
    corpus, ranges = read_corpus(path)
    if not corpus:
        sys.exit(f"there are no text files under {path}")
    opened = open_rts(connection_file=connection_file, data_bytes=DATA_BYTES)
    async with opened as rts, open_iml(layer=rts.data) as iml:
        data = await iml.alloc(len(corpus), corpus)
        items = [await iml.placed(data.range(offset, size)) for offset, size in ranges]
        net = map_reduce(count_words, add_counts, name="wordcount")
        async with open_job(net, rts=rts, values={"items": items}) as job:
            result = await job.wait()
    [counts] = result.outputs["result"]
    print(f"{len(corpus)} bytes in {len(ranges)} ranges, {sum(counts.values())} words")
    for word, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]:
        print(f"{number:>8} {word}")


if __name__ == "__main__":
    trio.run(main, *map(Path, sys.argv[1:] or ["."]))
