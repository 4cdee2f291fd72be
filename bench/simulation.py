"""How fast a cluster is simulated, with every checker on.

    python bench/simulation.py [--json] [--small]

``sim.events_per_s``  machine events per second of one core
``sim.speedup``       simulated seconds per second of one core

20 hosts of two cores, one job of about 1,000 tasks of five seconds, no faults. The simulation's own checkers
see every event; machines with more than 20 tasks or resources check themselves not after each of their
events but after a few (``--full-checks``: after each).
"""

from __future__ import annotations

import statistics
import time

from figures import Figures, options_parser
from msgspec.structs import replace

from gspc_trio.testing.faults import Faults
from gspc_trio.testing.hunt import quiet
from gspc_trio.testing.simulation import Options, simulate

SEEDS = (3, 12, 21)
OPTIONS = Options(hosts=20, cores=2, jobs=1, tasks=1000, task_s=5.0, faults=Faults.none())
SMALL = replace(OPTIONS, hosts=4, tasks=50)


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--full-checks", action="store_true", help="let machines check themselves always")
    chosen = parser.parse_args()
    options = replace(SMALL if chosen.small else OPTIONS, full_checks=chosen.full_checks)
    quiet()
    simulate(0, Options(tasks=2))  # what is made once is not measured
    rates, speedups = [], []
    for seed in SEEDS:
        begun_s = time.process_time()
        report = simulate(seed, options)
        elapsed_s = time.process_time() - begun_s
        assert not report.broken, report.broken
        rates.append(report.events / elapsed_s)
        speedups.append(report.simulated_s / elapsed_s)
    figures = Figures(chosen.json)
    figures.add("sim.events_per_s", statistics.median(rates), "1/s")
    figures.add("sim.speedup", statistics.median(speedups), "times")


if __name__ == "__main__":
    main()
