"""Strikes of the chaos harness: what is done to which process, in which order."""

from __future__ import annotations

from itertools import product
from random import Random

from msgspec import Struct

from gspc_trio.protocol.limits import DEFAULT_LIMITS

STOPS_S = (0.0, DEFAULT_LIMITS.lease_s, 3 * DEFAULT_LIMITS.lease_s)
"""How long what is struck is stopped; 0: it is killed."""

PROCESSES = ("compute", "rif", "job", "rts")
"""Roles of processes."""

LINKS = ("job link", "rif link")
"""Connections to the run-time system that go through a forwarder: of a job server, and of a RIF."""

KINDS: tuple[tuple[str, float], ...] = (*product(PROCESSES, STOPS_S), *((link, 0.0) for link in LINKS))
"""All that may happen, once each."""

MORE_KILLS = 2
"""So often more are compute processes and RIFs killed: these kills give the figures."""


class Strike(Struct, frozen=True):
    """Something that was done to a process at a time (wall clock)."""

    at_s: float
    role: str
    pid: int
    stopped_s: float

    def __str__(self) -> str:
        if self.role in LINKS:
            return f"connection of {self.role.split()[0]} {self.pid} half-open"
        how = f"stopped for {self.stopped_s:g} s" if self.stopped_s else "killed"
        return f"{self.role} {self.pid} {how}"

    @property
    def kind(self) -> tuple[str, float]:
        """Which of :data:`KINDS` it is."""
        return self.role, self.stopped_s


class Deck:
    """Says what is next: everything once, in an order that is drawn, then everything again.

    Args:
        random: to draw from.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cards: list[tuple[str, float]] = []

    def draw(self) -> tuple[str, float]:
        """Return a role, and for how long it is to be stopped."""
        if not self._cards:
            self._cards = [*KINDS, *(MORE_KILLS * (("compute", 0.0), ("rif", 0.0)))]
            self._random.shuffle(self._cards)
        return self._cards.pop()

    def put_back(self, card: tuple[str, float]) -> None:
        """It could not be done; it comes once more, later."""
        self._cards.insert(0, card)
