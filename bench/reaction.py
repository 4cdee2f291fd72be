"""What it brings to avoid a slow host of four: real scheduler and resource manager, simulated clock.

    python bench/reaction.py [--json]

``anomaly.gain``          time that a workflow takes with a slow host that is avoided 20 s after it has become
                          slow, over the time without any reaction: 20 stages, each of 64 tasks of 5 s that
                          the next one waits for; of 4 hosts of 4 cores one gets to 0.1 of its speed at 60 s
``anomaly.gain_quarter``  the same, to 0.25 of its speed
``anomaly.gain_half``     the same, to 0.5 of its speed
``anomaly.gain_apart``    the same as the first one, of 1,280 tasks that wait for nothing
"""

from __future__ import annotations

from figures import Figures, options_parser
from schedule.replay import Hosts, Replay, Work, WorkTask

from gspc_trio.components.rm.events import Rested

HOSTS, CORES, STAGES, TASKS, RUN_S = 4, 4, 20, 64, 5.0
SLOW_S, FOUND_S = 60.0, 80.0
"""When a host gets slow, and when that is found."""


class SlowHost(Replay):
    """A workflow whose first host gets slow.

    Args:
        work: the workflow.
        speed: of the host from then on.
        reacts: whether it is avoided once that is found.
    """

    def __init__(self, work: Work, speed: float, reacts: bool) -> None:
        super().__init__(work, Hosts("one slow", (1.0,) * HOSTS, (0,) * HOSTS, CORES))
        self._speed, self._waits = speed, reacts

    def _begin(self, resource_id: str) -> None:
        speed = self._speed if self.now >= SLOW_S else 1.0
        self.hosts = Hosts("one slow", (speed,) + (1.0,) * (HOSTS - 1), (0,) * HOSTS, CORES)
        super()._begin(resource_id)

    def feed(self, events: list[object]) -> None:
        """Carry events from machine to machine, after the news that the host is to be avoided."""
        if self._waits and self.now >= FOUND_S:
            self._waits = False
            self.rest(Rested(("r0.node",)))
        super().feed(events)


def stages(waits: bool) -> Work:
    """Return stages of tasks, each of which waits for all of the stage before, or for nothing."""
    tasks, before = list[WorkTask](), tuple[int, ...]()
    for _ in range(STAGES):
        ids = range(len(tasks) + 1, len(tasks) + 1 + TASKS)
        tasks += [WorkTask(task_id, RUN_S, before) for task_id in ids]
        before = tuple(ids) if waits else ()
    return Work("stages", tuple(tasks))


def main() -> None:
    """Measure and print."""
    figures = Figures(options_parser(__doc__).parse_args().json)
    for name, waits, speed in (
        ("", True, 0.1),
        ("_quarter", True, 0.25),
        ("_half", True, 0.5),
        ("_apart", False, 0.1),
    ):
        with_it, without = (
            SlowHost(stages(waits), speed, reacts).run().makespan_s for reacts in (True, False)
        )
        figures.add(f"anomaly.gain{name}", with_it / without, "")


if __name__ == "__main__":
    main()
