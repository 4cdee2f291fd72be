"""Figures of co-allocation: how fast requests are read.

    python bench/coallocation.py [--json] [--small]

``rsl.jobs_per_s``   jobs of a request that are read from text, half names alone, half with two options
                     each, in stages; CPU time of one core, best of five
"""

from __future__ import annotations

import time

from figures import Figures, options_parser

from gspc_trio import parse_coallocation

JOBS = 40_000


def jobs_per_s(jobs: int) -> float:
    """Return how many jobs are read in a second."""
    stage = "(*" + "(a)(b(count=2)(on_error=1))(c)(d(count=4 2)(attempts=2))" * 5 + ")"
    text = "*(a)" + stage * (jobs // 20)
    best_s = float("inf")
    for _ in range(5):
        begin_s = time.process_time()
        parse_coallocation(text)
        best_s = min(best_s, time.process_time() - begin_s)
    return jobs / best_s


def main() -> None:
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    figures.add("rsl.jobs_per_s", jobs_per_s(400 if options.small else JOBS), "jobs/s")


if __name__ == "__main__":
    main()
