"""Jobs and clients as a launcher keeps them; those that wait for a place do so in order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gspc_trio.components.launcher.events import CLIENT_TRANSITIONS, ClientState

POSTPONED_MAX = 100_000
"""Jobs of clients that may wait for a place; more are refused."""

POSTPONED_CHARACTERS_MAX = 64 << 20
"""Of the commands of all of them."""

COMMAND_CHARACTERS_MAX = 64 << 10
"""Of the program and the arguments of a client; the system takes little more."""


class LaunchedClient:
    """A client that has not ended."""

    def __init__(self, client_id: int) -> None:
        self.client_id = client_id
        self.state = ClientState.POSTPONED
        self.is_cancelling = False

    @property
    def has_ended(self) -> bool:
        """Whether it goes nowhere any more."""
        return not CLIENT_TRANSITIONS[self.state]


class LaunchedJob:
    """A job, from the time it is wanted.

    Attributes:
        incarnation: of the server that it is, or that has asked for it.
        clients: those of its clients that have not ended; none for a server, and when their server is over.
        client_ids: of all its clients; none for a server.
        command: of each client.
        uid, name, job_id: of its submission, of the job, and what the engine calls it.
        told: its state and its id, as the last record of it says.
    """

    def __init__(self, incarnation: int, clients: Sequence[LaunchedClient], command: tuple[str, ...]) -> None:
        self.incarnation = incarnation
        self.clients = list(clients)
        self.client_ids = tuple(client.client_id for client in clients)
        self.command = command
        self.uid = -1
        self.name = ""
        self.job_id = ""
        self.told = ("", "")


class PostponedJobs:
    """Jobs that wait for a place; who came first gets the first."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[LaunchedJob, int] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: LaunchedJob) -> bool:
        return job in self._jobs

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._jobs) >= POSTPONED_MAX or self._characters >= POSTPONED_CHARACTERS_MAX

    def add(self, job: LaunchedJob) -> None:
        """Let a job wait, as the last one."""
        self._jobs[job] = size = sum(map(len, job.command))
        self._characters += size

    def take_first(self) -> LaunchedJob:
        """Return the first of them, which waits no longer."""
        job, size = self._jobs.popitem(last=False)
        self._characters -= size
        return job

    def remove(self, job: LaunchedJob) -> None:
        """Forget one of them."""
        self._characters -= self._jobs.pop(job)

    def clear(self) -> None:
        """Forget all of them."""
        self._jobs.clear()
        self._characters = 0


def command_problem(command: Sequence[str]) -> str:
    """Return why nobody can start a command, or ""."""
    size = sum(map(len, command))
    if not command or not command[0]:
        return "there is no command"
    if size > COMMAND_CHARACTERS_MAX:
        return (
            f"a command of {size} characters is too long, {COMMAND_CHARACTERS_MAX} are the most: write what "
            "it is to know into a file, and pass its name"
        )
    wrong = next((word for word in command if not _can_be_argument(word)), None)
    return "" if wrong is None else f"the command has {wrong[:40]!r}, which cannot be passed to a program"


def _can_be_argument(word: str) -> bool:
    try:
        return b"\0" not in word.encode("utf-8")
    except UnicodeEncodeError:
        return False
