"""Book of a server: its requests that have no answer yet, and what it was told of its clients."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gspc_trio.components.launcher.events import (
    CLIENT_TRANSITIONS,
    CancelClient,
    ClientMoved,
    ClientState,
    RequestAccepted,
    RequestRefused,
    StatesFresh,
    StatesStale,
    SubmitClients,
    ToServer,
)


class ClientBook:
    """What one server has asked for and was told.

    Attributes:
        clients: client -> what was told of it last.
        changes: what was told, and nobody has taken yet, in order.
        stale: why the states are old, "" if they are not.
    """

    def __init__(self) -> None:
        self.clients: dict[int, ClientMoved] = {}
        self.changes: deque[ClientMoved] = deque()
        self.stale: str = ""
        self._requests: dict[int, SubmitClients | CancelClient] = {}
        self._answers: dict[int, str] = {}
        self._last_request = 0
        self._live = 0
        self._news: set[int] = set()
        """Clients of which something new was told since the connection began."""

    @property
    def has_live_clients(self) -> bool:
        """Whether a client has not ended, or may be there soon."""
        waiting = any(isinstance(one, SubmitClients) for one in self._requests.values())
        return self._live > 0 or waiting

    def submit(self, client_ids: Iterable[int], command: Sequence[str]) -> SubmitClients:
        """Return the message that asks for clients, which share one job.

        Raises:
            ValueError: there can be no such clients.
        """
        ids, words = tuple(client_ids), tuple(command)
        if isinstance(command, str) or not words:
            raise ValueError(f"command: {command!r} is no list of a program and its arguments")
        if not ids or len(set(ids)) < len(ids) or min(ids) < 0:
            raise ValueError(f"client_ids: {list(ids)} are not one or more different numbers from 0")
        asked = SubmitClients(self._next(), ids, words)
        self._requests[asked.request] = asked
        return asked

    def cancel(self, client_id: int) -> CancelClient:
        """Return the message that asks for the end of a client."""
        asked = CancelClient(self._next(), client_id)
        self._requests[asked.request] = asked
        return asked

    def _next(self) -> int:
        self._last_request += 1
        return self._last_request

    def connected_again(self) -> list[SubmitClients | CancelClient]:
        """Return the requests without an answer, to be made once more over a new connection."""
        self._news.clear()
        self._requests = {number: replace(asked, again=True) for number, asked in self._requests.items()}
        return list(self._requests.values())

    def take(self, said: ToServer) -> None:
        """Note what the launcher says."""
        match said:
            case RequestAccepted():
                asked = self._requests.pop(said.request, None)
                if asked is not None:
                    self._answers[said.request] = ""
                if isinstance(asked, SubmitClients):
                    for client_id in asked.client_ids:
                        if not asked.again or client_id not in self._news:
                            self._move(ClientMoved(client_id, ClientState.POSTPONED))
            case RequestRefused():
                if self._requests.pop(said.request, None) is not None:
                    self._answers[said.request] = said.reason
            case ClientMoved():
                if said != self.clients.get(said.client_id):  # a launcher that goes on repeats what it said
                    self._move(said)
                    self._news.add(said.client_id)
                    self.changes.append(said)
            case StatesStale():
                self.stale = said.reason
            case StatesFresh():
                self.stale = ""

    def _move(self, said: ClientMoved) -> None:
        before = self.clients.get(said.client_id)
        self._live += is_live(said) - (before is not None and is_live(before))
        self.clients[said.client_id] = said

    def take_answer(self, request: int) -> str | None:
        """Return why a request was refused, "" if it was accepted, None if there is no answer yet.

        An answer is returned once.
        """
        return self._answers.pop(request, None)


def is_live(client: ClientMoved) -> bool:
    """Return whether a client has not ended."""
    return bool(CLIENT_TRANSITIONS[client.state])
