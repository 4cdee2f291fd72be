"""Is this host fit to compute? Whether it is to be taken out of use for what becomes of its processes."""

from __future__ import annotations

from gspc_trio.components.rif.events import StartFailed, Unfit

DEATHS = 2
"""So many processes in a row that die before they take a task are no chance: one may have been killed."""


class Fitness:
    """Counts what a host has failed to start, whichever of its workers it was for.

    A process that dies of its task is not counted: it had taken it.

    Attributes:
        deaths: processes that have died before they took a task, since one has last ended a task here.
    """

    def __init__(self) -> None:
        self.deaths = 0

    def start_failed(self, event: StartFailed) -> list[Unfit]:
        """A compute process could not be started, or died at once; say so if the host is to blame."""
        if not event.died:
            return [Unfit(event.detail)]
        self.deaths += 1
        if self.deaths < DEATHS:
            return []
        return [Unfit(f"compute processes die before they take a task, the last: {event.detail}")]
