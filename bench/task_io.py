"""What it costs to count the reads and writes of tasks.

    python bench/task_io.py [--json] [--small]

``io.call_ns``  CPU time that the preloaded library adds to a read of a file of 1 byte
``io.loss``     part of the CPU time of reads of 64 KiB, from the page cache, that it takes
``io.counts_us``  CPU time to read the counts of a process once

Each is the median of pairs, whose sides take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Figures, options_parser

from gspc_trio.compute.io.area import FLAGS, SOURCE, VARIABLE, Area
from gspc_trio.compute.io.loop import Meter
from gspc_trio.workflow.formats.in_tasks.native import CompileError, c_library, compiler_command

PAIRS = 15

PROGRAM = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words)
{
    static char data[65536];
    struct timespec begin, end;
    int fd = open(words[1], O_RDONLY);
    size_t size = atoi(words[2]);
    long calls = atol(words[3]);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    for (long i = 0; i < calls; i++)
        if (pread(fd, data, size, 0) < 0)
            return 1;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    printf("%.2f", ((end.tv_sec - begin.tv_sec) * 1e9 + end.tv_nsec - begin.tv_nsec) / calls);
    return 0;
}
"""


def measure(folder: Path, figures: Figures, pairs: int, calls: int) -> None:
    """Print the figures of the library."""
    program, data = folder / "program", folder / "data"
    command = [*compiler_command("CC", "cc", "C"), "-O2", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    data.write_bytes(bytes(65536))
    library = c_library(Path(SOURCE).read_text(encoding="utf-8"), FLAGS)
    with (folder / "area").open("w+b") as file:
        area = Area.make(file.fileno())
        counted = {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(folder / "area")}

        def ns(environment: dict[str, str], size: int) -> float:
            words = [str(program), str(data), str(size), str(calls if size == 1 else calls // 20)]
            return float(subprocess.check_output(words, env=environment))

        rows = {
            size: [(ns(dict(os.environ), size), ns(counted, size)) for _ in range(pairs)]
            for size in (1, 65536)
        }
        assert sum(area.sums().even) + sum(area.sums().odd) > 0, "nothing was counted"
        area.close()
    figures.add("io.call_ns", statistics.median(with_it - alone for alone, with_it in rows[1]), "ns")
    figures.add("io.loss", statistics.median(1 - alone / with_it for alone, with_it in rows[65536]), "")


def main() -> int:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    pairs, calls = (1, 20_000) if options.small else (PAIRS, 400_000)
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), figures, pairs, calls)
    except CompileError as error:
        print(f"io.call_ns, io.loss: left out: {error}", file=sys.stderr)
    meter = Meter(calls=False)
    begun = time.process_time()
    for _ in range(calls // 10):
        meter.read(())
    figures.add("io.counts_us", (time.process_time() - begun) / (calls // 10) * 1e6, "us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
