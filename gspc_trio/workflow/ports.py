"""The ports of a net while it runs: tokens that come from outside, and those that somebody takes off."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct

from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.marking import StreamPort
from gspc_trio.workflow.runtime import RunningNet
from gspc_trio.workflow.tokens import Feed, Plain, Token, Value


class PortMoved(Struct, frozen=True):
    """Something outside has changed the tokens of a port; a journal has it.

    Attributes:
        port: the name.
        what: ``put``: tokens have come; ``close``: no more come; ``take``: tokens were taken off; ``hold``
            and ``free``: somebody begins to take tokens off, or takes none off any more.
        values: encoded, of tokens that have come.
        count: how many were taken off.
    """

    port: str
    what: str
    values: tuple[bytes, ...] = ()
    count: int = 0


class Ports:
    """The ports of one running net.

    Args:
        running: the net.

    Attributes:
        open: names of the input ports that are open: more tokens come, so the workflow has not ended.
        received: input port -> how many tokens have come while it was open.
        note: told of each change before it is made; None: nobody wants to know.
    """

    def __init__(self, running: RunningNet) -> None:
        self._running = running
        self._streams = [place for place in running.places.values() if isinstance(place, StreamPort)]
        self.open: dict[str, None] = {}
        self.received: dict[str, int] = {}
        self.note: Callable[[PortMoved], None] | None = None

    def begin(self, values: Mapping[str, object]) -> None:
        """Open the ports that are open at the beginning, and those that an iterator fills."""
        for name, place in self._running.places.items():
            description = place.description
            if description.is_input and (description.is_open or isinstance(values.get(name), Feed)):
                self.open[name] = None
                self.received[name] = 0
                if description.end:  # its token says that the port is closed
                    end = self._running.places[description.end]
                    end.remove(end.first())

    def put(self, port: str, tokens: Sequence[Token], encoded: tuple[bytes, ...]) -> None:
        """Add tokens to an input port.

        Raises:
            WorkflowError: it is closed.
        """
        description = self._running.places[port].description
        if port not in self.open and (description.end or port in self.received):
            raise WorkflowError(f"the input port {port!r} is closed: it takes no more tokens")
        if self.note is not None:
            self.note(PortMoved(port, "put", encoded))
        self._put(port, tokens)

    def _put(self, port: str, tokens: Sequence[Token]) -> None:
        if port in self.open:
            self.received[port] += len(tokens)
        place = self._running.places[port]
        for token in tokens:
            place.put(token)

    def close(self, port: str) -> None:
        """Say that no more tokens come to a port; nothing happens if it is closed."""
        if port in self.open:
            self._move(PortMoved(port, "close"))

    def hold(self, port: str, is_held: bool) -> None:
        """Hold the workflow back while somebody takes tokens off a port, or no longer.

        Raises:
            WorkflowError: somebody takes them off already.
        """
        if is_held and self.stream(port).is_held:
            raise WorkflowError(f"somebody reads the results at {port!r} already, and takes them off")
        self._move(PortMoved(port, "hold" if is_held else "free"))

    def take_off(self, port: str, count: int) -> None:
        """Take the first ``count`` tokens off an output port."""
        if count:
            self._move(PortMoved(port, "take", count=count))

    @property
    def waits(self) -> bool:
        """Whether tokens may come that nobody here knows of, or who reads a stream has not yet made room."""
        until = self._running.until
        if self.open and not (until and all(place.tokens for place in until)):
            return True
        return any(place.is_held and place.owed for place in self._streams)

    @property
    def takes_more(self) -> bool:
        """Whether tokens may come that can still do something when others have failed.

        An iterator of which no more is read, for what it has given is not taken, gives none.
        """
        until = self._running.until
        if until and all(place.tokens for place in until):
            return False
        return any(self.has_room(port) for port in self.open)

    def has_room(self, port: str) -> bool:
        """Whether values of an iterator are read for a port: a quarter of its room is free."""
        most = self._running.places[port].description.read_ahead
        return not most or 4 * (most - self.waiting(port)) >= most

    def waiting(self, port: str) -> int:
        """Return how many tokens there are at a port."""
        return len(self._running.places[port])

    def first(self, port: str, most: int) -> list[Token]:
        """Return the first tokens at a port, at most so many."""
        return list(islice(self._running.places[port], most))

    def is_stream(self, port: str) -> bool:
        """Return whether tokens are taken off an output port by who reads it."""
        return isinstance(self._running.places.get(port), StreamPort)

    def stream(self, port: str) -> StreamPort:
        """Return an output port that is a stream."""
        place = self._running.places[port]
        assert isinstance(place, StreamPort), "it is no stream"
        return place

    def _move(self, moved: PortMoved) -> None:
        if self.note is not None:
            self.note(moved)
        self.move(moved)

    def move(self, moved: PortMoved) -> None:
        """Make a change once more, as a journal has it."""
        port = moved.port
        if moved.what == "put":
            self._put(port, [Token(data=data) for data in moved.values])
        elif moved.what == "close":
            del self.open[port]
            end = self._running.places[port].description.end
            if end:
                self._running.places[end].put(Token(None))
        elif moved.what == "take":
            self.stream(port).take_off(moved.count)
        else:
            self.stream(port).hold(moved.what == "hold")

    def free_all(self) -> None:
        """Nobody takes tokens off any port: those who did are gone."""
        for place in self._streams:
            if place.is_held:
                place.hold(False)

    def dump(self) -> dict[str, Plain]:
        """Return their state as plain data; nothing if no port was ever open or read."""
        streams = {
            place.description.name: [place.is_held, place.owed, place.taken]
            for place in self._streams
            if place.is_held or place.owed or place.taken
        }
        if not self.received and not streams:
            return {}
        return {"open": list(self.open), "received": dict(self.received), "streams": streams}

    def load(self, state: Mapping[str, Plain]) -> None:
        """Go on with a state that was dumped."""
        self.open = dict.fromkeys(state.get("open", ()))
        self.received = dict(state.get("received", {}))
        for name, (is_held, owed, taken) in state.get("streams", {}).items():
            if self.is_stream(name):
                place = self.stream(name)
                place.is_held, place.owed, place.taken = is_held, owed, taken


class Notation(Protocol):
    """How a workflow's format writes values."""

    def parse_value(self, port: str, text: str, /) -> object:
        """Return the value that a text stands for; ValueError if it is badly written."""
        ...

    def show_value(self, port: str, value: object, /) -> str:
        """Return a value as text."""
        ...


class JsonNotation:
    """JSON where a text is that, else the text itself: that of workflows in Python."""

    def parse_value(self, _port: str, text: str, /) -> object:
        """Return the value that a text stands for."""
        try:
            value: Value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value

    def show_value(self, _port: str, value: object, /) -> str:
        """Return a value as text: a text as it is, other values as JSON if they can be."""
        if isinstance(value, str):
            return value
        try:
            return json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            return str(value)
