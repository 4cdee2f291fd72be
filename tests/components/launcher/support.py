"""A launcher under test: checked after each event, its time goes from deadline to deadline."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import evolve

from gspc_trio.components.launcher.events import (
    LauncherAction,
    LauncherEvent,
    Listed,
    ListEngine,
    Message,
    NewConnection,
    SendToServer,
    ServerMessage,
    ServerPing,
    SubmitClients,
    Submitted,
    SubmitToEngine,
    ToServer,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.core.machine import Tick

USUAL = LauncherOptions(scheduler="slurm", job_limit=3, group_size=4)
COMMAND = ("solve",)


class WatchedLauncher(Launcher):
    """A launcher whose transitions are noted, also those within one event."""

    def __init__(
        self, options: LauncherOptions, study: str, records: bool, resumable: bool, jobs_per_server: int
    ) -> None:
        super().__init__(
            options, study, records=records, resumable=resumable, jobs_per_server=jobs_per_server
        )
        self.walked: set[tuple[LauncherState, LauncherState]] = set()

    def _enter(self, state: LauncherState, reason: str = "") -> None:
        self.walked.add((self.state, state))
        super()._enter(state, reason)


class Study:
    """A launcher with these options beside the usual ones of tests.

    Args:
        records: whether it tells of itself.
        resumable: whether another launcher may go on for it.
        jobs_per_server: how many jobs there are for a server.
    """

    def __init__(
        self,
        *,
        records: bool = False,
        resumable: bool = True,
        jobs_per_server: int = 1,
        **options: bool | float,
    ) -> None:
        changed: Callable[..., LauncherOptions] = partial(evolve, USUAL)
        self.machine = WatchedLauncher(changed(**options), "s", records, resumable, jobs_per_server)
        self.now = 0.0
        self.told: list[ToServer] = []
        self.server = 0

    @property
    def state(self) -> str:
        return self.machine.state.value

    def tell(self, event: LauncherEvent) -> list[LauncherAction]:
        actions = self.machine.handle(event, self.now)
        self.machine.check()
        self.told += [action.body for action in actions if isinstance(action, SendToServer)]
        return actions

    def tick(self) -> list[LauncherAction]:
        due = self.machine.deadline()
        assert due is not None
        self.now = max(self.now, due)
        return self.tell(Tick())

    def say(self, body: ServerMessage, connection: int = 1) -> list[LauncherAction]:
        return self.tell(Message(connection, body))

    def want(self, *client_ids: int, request: int = 1) -> list[LauncherAction]:
        return self.say(SubmitClients(request, client_ids, COMMAND))

    def submitted(self) -> Study:
        """Go to where the engine was given the server job, as call 0."""
        assert self.tick() == [SubmitToEngine(0, "s-0", 0, from_checkpoint=False)]
        return self

    def awaiting(self) -> Study:
        """Go to where the engine has the server job as 10."""
        self.submitted()
        assert self.tell(Submitted(0, "10")) == []
        return self

    def serving(self) -> Study:
        """Go to where the server is connected, by connection 1."""
        self.awaiting()
        assert self.tell(NewConnection(1, 0, "10")) == []
        return self

    def asked_for_list(self) -> int:
        """Tick until a list is asked for, while the server lives; return the number of that call."""
        for _ in range(20):
            self.say(ServerPing())
            for action in self.tick():
                if isinstance(action, ListEngine):
                    return action.uid
        raise AssertionError("nobody asks for a list")

    def listed(self, *jobs: BatchJob) -> list[LauncherAction]:
        """Answer the next list that is asked for; return what follows from the answer."""
        return self.tell(Listed(self.asked_for_list(), jobs))


def job(number: int, state: BatchState, reason: str = "") -> BatchJob:
    """Return what the engine tells of the job of call ``number``, which it calls ten more than that."""
    return BatchJob(str(10 + number), f"s-{number}", state, reason)
