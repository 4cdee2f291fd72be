"""What it brings to avoid a slow host of four: real scheduler and resource manager, simulated clock.

    python bench/reaction.py [--json]
    python bench/reaction.py --measure [--json]

``anomaly.gain``          time that a workflow takes with a slow host that is avoided once that is found, over
                          the time without any reaction: 20 stages, each of 64 tasks of 5 s that the next one
                          waits for; of 4 hosts of 4 cores one gets to 0.1 of its speed at 60 s, and that is
                          found 20 s later
``anomaly.gain_quarter``  the same, to 0.25 of its speed
``anomaly.gain_half``     the same, to 0.5 of its speed
``anomaly.gain_apart``    the same as the first one, of 1,280 tasks that wait for nothing
``anomaly.gain_narrow``   the first three once more, of 40 stages of 12 tasks
``anomaly.gain_CLASS``    40 stages of 12 tasks, for which there is room on the three other hosts; the host is
                          as slow as tasks were beside such an anomaly, which is found as soon as it was
``anomaly.gain_wide_CLASS``  the same of 20 stages of 64 tasks, which take all hosts more than once
``anomaly.gain_long_CLASS``  the same of 400 stages of 12 tasks, half an hour
``anomaly.ideal_CLASS``, ``anomaly.ideal_wide_CLASS``, ``anomaly.ideal_long_CLASS``
                          what it would be if the anomaly were found at once: avoiding brings no more

``--measure`` puts anomalies into this host for real, and says how fast three kinds of tasks are beside each,
of their speed without: tasks that compute, that copy 8 MiB again and again, and that write 256 KiB and sync
them. One of them runs on each core. It needs a machine on which nothing else runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import Pool

from figures import Figures, options_parser
from schedule.replay import JOB, Hosts, Replay, Work, WorkTask, host_number

from gspc_trio.components.rm.events import Rested
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.task import Outcome, Reason, TaskError

IOERR_S = 13.0
"""So soon a disk was found of which a part of the accesses fails."""

HOSTS, CORES, STAGES, TASKS, RUN_S = 4, 4, 20, 64, 5.0
NARROW_STAGES, NARROW_TASKS, LONG_STAGES = 40, 12, 400
SLOW_S, FOUND_S = 60.0, 80.0
"""When a host gets slow, and when that is found."""

MEASURED: dict[str, tuple[float, float]] = {
    "dial": (0.67, 17.0),
    "ddot": (0.56, 16.0),
    "memeater": (0.76, 15.0),
    "leak": (0.9, 58.0),
    "copy": (0.99, 8.0),
    "cpufreq_70": (0.7, 13.0),
    "cpufreq_50": (0.5, 11.0),
}
"""Class -> speed of the tasks that are slowed down most beside it (``--measure``), and seconds until it was
found (``bench/anomalies.py``)."""


class SlowHost(Replay):
    """A workflow whose first host gets slow.

    Args:
        work: the workflow.
        speed: of the host from then on.
        reacts: whether it is avoided once that is found.
        found_s: when that is.
    """

    def __init__(self, work: Work, speed: float, reacts: bool, found_s: float = FOUND_S) -> None:
        super().__init__(work, Hosts("one slow", (1.0,) * HOSTS, (0,) * HOSTS, CORES))
        self._speed, self._waits, self._found_s = speed, reacts, found_s

    def _begin(self, resource_id: str) -> None:
        speed = self._speed if self.now >= SLOW_S else 1.0
        self.hosts = Hosts("one slow", (speed,) + (1.0,) * (HOSTS - 1), (0,) * HOSTS, CORES)
        super()._begin(resource_id)

    def feed(self, events: list[object]) -> None:
        """Carry events from machine to machine, after the news that the host is to be avoided."""
        if self._waits and self.now >= self._found_s:
            self._waits = False
            self.rest(Rested(("r0.node",)))
        super().feed(events)


def stages(waits: bool, number: int = STAGES, width: int = TASKS) -> Work:
    """Return stages of tasks, each of which waits for all of the stage before, or for nothing."""
    tasks, before = list[WorkTask](), tuple[int, ...]()
    for _ in range(number):
        ids = range(len(tasks) + 1, len(tasks) + 1 + width)
        tasks += [WorkTask(task_id, RUN_S, before) for task_id in ids]
        before = tuple(ids) if waits else ()
    return Work("stages", tuple(tasks))


def gain(work: Work, speed: float, found_s: float = FOUND_S) -> float:
    """Return the time with the reaction over that without."""
    with_it, without = (SlowHost(work, speed, reacts, found_s).run().makespan_s for reacts in (True, False))
    return with_it / without


class BadDisk(SlowHost):
    """A workflow of which every second task fails on the first host from then on: its disk does (EIO)."""

    def __init__(self, work: Work, reacts: bool, found_s: float) -> None:
        super().__init__(work, 1.0, reacts, found_s)
        self._failures = 0

    def _end(self, resource_id: str, outcome: Outcome) -> None:
        if host_number(resource_id) or self.now < SLOW_S:
            super()._end(resource_id, outcome)
            return
        self._failures += 1
        if self._failures % 2:
            super()._end(resource_id, outcome)
            return
        error = TaskError("OSError", "[Errno 5] Input/output error")
        failed = Outcome(outcome.task_id, outcome.attempt, Reason.FAILED, error=error)
        del self._queues[resource_id][0]
        self._begin(resource_id)
        self.feed([Finished(JOB, resource_id, (failed,))])


# How slow tasks are beside an anomaly -----------------------------------------------------------------------

MIB = 1 << 20
EACH_S, BEGIN_S = 5.0, 3.0
"""So long tasks of a kind are looked at; so long an anomaly needs to begin."""

ANOMALIES = (
    *(("", ""), ("dial", ""), ("ddot", "--caches=5"), ("ddot", "--caches=10"), ("memeater", "")),
    *(("leak", ""), ("copy", "")),
)


def compute() -> None:
    """Use a core."""
    sum(number * number % 7 for number in range(20_000))


BLOCK = bytearray(b"1") * (8 * MIB)


def copy_memory() -> None:
    """Use memory."""
    bytes(BLOCK)


def write() -> None:
    """Use a disk."""
    with tempfile.TemporaryFile(buffering=0, dir="/var/tmp") as file:
        file.write(bytes(MIB // 4))
        os.fsync(file.fileno())


def rounds(kind: int) -> int:
    """Return how often one of these was done in some seconds."""
    done, end_s = 0, time.monotonic() + EACH_S
    while time.monotonic() < end_s:
        (compute, copy_memory, write)[kind]()
        done += 1
    return done


def measure(figures: Figures) -> None:
    """Print how fast tasks are beside each anomaly, of their speed without."""
    usual = [0, 0, 0]
    cores = len(os.sched_getaffinity(0))
    with Pool(cores) as pool:
        for name, more in ANOMALIES:
            words = [sys.executable, "-m", "gspc_trio.testing.anomalies", name, "--for-s", "60"]
            other = subprocess.Popen([*words, more] if more else words) if name else None
            time.sleep(BEGIN_S)
            done = [sum(pool.map(rounds, [kind] * cores)) for kind in range(3)]
            if other is None:
                usual = done
                continue
            other.kill()
            other.wait()
            for kind, now, before in zip(("compute", "memory", "write"), done, usual, strict=True):
                figures.add(f"anomaly.speed_{name}{more.replace('--caches=', '')}_{kind}", now / before, "")


def add_classes(figures: Figures) -> None:
    """Print what it brings for each class, and what it would bring if that were found at once."""
    works = {
        "": stages(True, NARROW_STAGES, NARROW_TASKS),
        "wide_": stages(True),
        "long_": stages(True, LONG_STAGES, NARROW_TASKS),
    }
    for shape, work in works.items():
        for name, (speed, soon_s) in MEASURED.items():
            figures.add(f"anomaly.gain_{shape}{name}", gain(work, speed, SLOW_S + soon_s), "")
            figures.add(f"anomaly.ideal_{shape}{name}", gain(work, speed, SLOW_S), "")
        without = BadDisk(work, False, SLOW_S).run().makespan_s
        for figure, soon_s in (("gain", IOERR_S), ("ideal", 0.0)):
            with_it = BadDisk(work, True, SLOW_S + soon_s).run().makespan_s
            figures.add(f"anomaly.{figure}_{shape}ioerr", with_it / without, "")


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--measure", action="store_true", help="how slow tasks are beside an anomaly")
    chosen = parser.parse_args()
    figures = Figures(chosen.json)
    if chosen.measure:
        measure(figures)
        return
    for name, waits, speed in (
        ("", True, 0.1),
        ("_quarter", True, 0.25),
        ("_half", True, 0.5),
        ("_apart", False, 0.1),
    ):
        figures.add(f"anomaly.gain{name}", gain(stages(waits), speed), "")
    for name, speed in (("", 0.1), ("_quarter", 0.25), ("_half", 0.5)):
        figures.add(f"anomaly.gain_narrow{name}", gain(stages(True, NARROW_STAGES, NARROW_TASKS), speed), "")
    add_classes(figures)


if __name__ == "__main__":
    main()
