"""What runs in the jobs of a simulated study: servers, which ask for clients, and the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import trio
from msgspec.structs import replace

from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelClient,
    ClientMoved,
    ClientState,
    CloseConnection,
    PingServer,
    RefuseConnection,
    RequestAccepted,
    RequestRefused,
    ServerPing,
    StudyDone,
    SubmitClients,
    SubmitToEngine,
)
from gspc_trio.testing.study.launcher import ServerLink

COMMAND = ("solve",)

PAUSES_S = (0.0, 0.0, 0.01, 0.5, 3.0)
"""Between two requests of a server."""

LOOK_S = 1.0
"""A server without anything to ask for looks so often whether it has."""

LINGERS_S = (0.0, 0.0, 3.0, 40.0, 4000.0)
"""For how long a server runs on whose connection has ended after the launcher has said something."""

WORK_S = (0.0, 1.0, 5.0, 20.0)
"""How long clients take, at most."""

RETRIES, RETRY_S = 100, 1.0
"""How often a server connects whose connection has ended, and how long after that."""

FAILS, CANCELS, ERRS = 0.15, 0.08, 0.08
"""So many clients fail; so many requests cancel a client; so many are wrong."""


class SimulatedServer:
    """A server of a study: asks for clients until each has completed once.

    Args:
        random: to draw from.
        group_size: most clients of a job.
        to_do: clients that are to complete; those that did are taken away, also for the next server.
    """

    def __init__(self, random: Random, group_size: int, to_do: set[int]) -> None:
        self._random = random
        self._group_size = group_size
        self._to_do = to_do
        self._asked: dict[int, ClientState] = {}
        self._requests: dict[int, tuple[int, ...]] = {}
        self._open: dict[int, SubmitClients | CancelClient] = {}
        """Requests without an answer."""
        self._is_done = False
        self._numbers: Iterator[int] = count(1)
        self._link: ServerLink

    async def run(self, connect: Callable[[], ServerLink]) -> None:
        """Serve until all is done, or the launcher says that it is over, or is not there.

        Args:
            connect: says who it is over a new connection, and returns that.
        """
        is_known = False
        async with trio.open_nursery() as nursery:
            for number in range(RETRIES):
                self._link = connect()
                for asked in list(self._open.values()):
                    self._link.say(replace(asked, again=True))
                if number == 0:
                    nursery.start_soon(self._ask)
                is_over, was_heard = await self._listen()
                is_known = is_known or was_heard
                if is_over or not is_known:
                    break
                await trio.sleep(RETRY_S)
            nursery.cancel_scope.cancel()
        await trio.sleep(self._random.choice(LINGERS_S) if is_known else 0.0)

    async def _listen(self) -> tuple[bool, bool]:
        """Take all that is said; return whether it is over, and whether something else was said."""
        is_known = False
        while True:
            match await self._link.down.receive():
                case None:
                    return self._is_done, is_known
                case CloseConnection() | RefuseConnection():
                    return True, is_known
                case PingServer():
                    self._link.say(ServerPing())
                case ClientMoved(client_id=client_id, state=state):
                    self._asked[client_id] = state
                    if state is ClientState.COMPLETED:
                        self._to_do.discard(client_id)
                case RequestAccepted(request=request):
                    self._open.pop(request, None)
                case RequestRefused(request=request):
                    asked = self._open.pop(request, None)
                    for client_id in self._requests.pop(request, ()):
                        if asked is not None:
                            self._asked.pop(client_id, None)
            is_known = True

    def _request(self, asked: SubmitClients | CancelClient) -> None:
        self._open[asked.request] = asked
        self._link.say(asked)

    async def _ask(self) -> None:
        while self._to_do:
            free = [one for one in sorted(self._to_do) if self._has_ended(one)]
            choice = self._random.random()
            if choice < ERRS:
                self._request(self._wrong())
            elif choice < ERRS + CANCELS and self._asked:
                one = self._random.choice(sorted(self._asked))
                self._request(CancelClient(next(self._numbers), one))
            elif free:
                ids = self._random.sample(free, min(len(free), self._random.randint(1, self._group_size)))
                request = next(self._numbers)
                self._requests[request] = tuple(ids)
                self._asked |= dict.fromkeys(ids, ClientState.POSTPONED)
                self._request(SubmitClients(request, tuple(ids), COMMAND))
            await trio.sleep(self._random.choice(PAUSES_S) if free else LOOK_S)
        self._is_done = True
        self._link.say(StudyDone())

    def _has_ended(self, client_id: int) -> bool:
        state = self._asked.get(client_id)
        return state is None or not CLIENT_TRANSITIONS[state]

    def _wrong(self) -> SubmitClients | CancelClient:
        """Return a request that may be refused."""
        request, one = next(self._numbers), self._random.choice(sorted(self._to_do))
        if self._random.random() < 0.5:
            return CancelClient(request, one)
        many = tuple(range(100, 101 + self._group_size))
        ids = self._random.choice(((one,), (one, one), (), many))
        return SubmitClients(request, ids, self._random.choice((COMMAND, COMMAND, ())))


class SimulatedClients:
    """The clients of one job.

    Args:
        random: to draw from.
        asked: how the launcher has asked for them.
        exited: told of each that ends, with its exit status.
    """

    def __init__(self, random: Random, asked: SubmitToEngine, exited: Callable[[int, int], None]) -> None:
        self.running: dict[int, trio.CancelScope] = {
            client_id: trio.CancelScope() for client_id in asked.client_ids
        }
        self._random = random
        self._exited = exited

    async def run(self) -> None:
        """Run them until all have ended."""
        async with trio.open_nursery() as nursery:
            for client_id, scope in self.running.items():
                nursery.start_soon(self._run, client_id, scope)

    async def _run(self, client_id: int, scope: trio.CancelScope) -> None:
        work_s = self._random.uniform(0.0, self._random.choice(WORK_S))
        with scope:
            await trio.sleep(work_s)
        status = 143 if scope.cancelled_caught else int(self._random.random() < FAILS)
        del self.running[client_id]
        self._exited(client_id, status)
