"""The interface of bootstrap strategies (RTS-1): the order to start a RIF, and what a strategy has to do."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

from msgspec import field

from gspc_trio.components.provision.blocks import BlockEnrolments
from gspc_trio.core.ids import RifId
from gspc_trio.core.similar import did_you_mean
from gspc_trio.protocol.hidden import HidesFields

EMBEDDED = "embedded"
"""Name of the strategy that runs a RIF in the process of the run-time system, with which it ends."""

STAGING_OPTIONS = (
    *("staging", "site_directory", "allow_files"),
    *("file_transfers", "file_transfers_submit", "host_file_transfers", "host_file_transfers_submit"),
    *("file_operations", "file_operations_submit", "host_file_operations", "host_file_operations_submit"),
)
"""Options of a host about how the files of tasks get there."""

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

LINES_KEPT = 8
"""How many of the last lines that a RIF printed are kept, to say why it did not come up."""


class StrategyError(Exception):
    """A RIF cannot be started this way; the message is one line for people."""


class StartedAgain(StrategyError):
    """It is over with the RIF, and another process has come in its place, which waits for an order."""


class OutOfSight(StrategyError):
    """The RIF came up, and cannot be seen any more; whether it runs is not known."""


def _last_lines() -> deque[str]:
    return deque(maxlen=LINES_KEPT)


def _nobody(text: str) -> None:
    del text


def _nothing() -> None:
    pass


class RifOrder(HidesFields, frozen=True):
    """What a strategy is to start, once.

    Attributes:
        rif_id, incarnation: what the RIF is to call itself.
        host: where.
        cores: number of cores it is to offer, 0 for what its hardware has.
        options: of the strategy, as the user gave them.
        rts_addresses: where the RTS listens.
        token: the secret that the RIF proves to know; it must show up in no command line, environment or log.
        credentials: for TLS, issued to this RIF; as secret as the token. "" without TLS.
        grace_s: how long the RIF is to wait for its RTS when it cannot hear it; 0: it ends at once.
        said: the last lines that the RIF printed; the strategy appends, the RTS tells them if it fails.
        tell: takes what a RIF that is not up yet waits for, in one line for people.
        ordered: called when the RIF has got its order, for strategies where that may take long.
        block, node, nodes: the block of which it is, which of its nodes it has, and how many there are;
            "": it is of none.
        taken: the RIF has its order already, from an earlier run-time system.
        enrolments: where RIFs of blocks enrol.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials", "tell", "ordered", "enrolments"})

    rif_id: RifId
    incarnation: int
    host: str
    cores: int
    options: dict[str, str]
    rts_addresses: tuple[str, ...]
    token: bytes
    credentials: str = ""
    said: deque[str] = field(default_factory=_last_lines)
    grace_s: float = 0.0
    tell: Callable[[str], None] = _nobody
    ordered: Callable[[], None] = _nothing
    block: str = ""
    node: int = 0
    nodes: int = 1
    taken: bool = False
    enrolments: BlockEnrolments | None = None

    def rts_address(self, scheme: str) -> str:
        """Return the first address of the RTS that begins with ``scheme``; ``ws:`` stands for ``wss:`` too.

        Raises:
            StrategyError: the RTS has none.
        """
        for address in self.rts_addresses:
            if address.startswith(scheme) or (scheme == "ws:" and address.startswith("wss:")):
                return address
        there = ", ".join(self.rts_addresses)
        raise StrategyError(
            f"the RIF would need an address {scheme}... of the RTS, which listens on {there} only"
        )


def check_options(order: RifOrder, *known: str) -> None:
    """See that the user has given no other options than those a strategy knows.

    Raises:
        StrategyError: an option that is not known; the message says which one may be meant, and which are.
    """
    unknown = sorted(set(order.options) - set(known))
    if unknown:
        meant = did_you_mean(unknown[0], known)
        there = ", ".join(sorted(known))
        raise StrategyError(f"there is no option {unknown[0]!r}{meant}; there are: {there}")


def come_up_times(strategies: Mapping[str, Strategy]) -> dict[str, float]:
    """Return how many seconds RIFs may take to come up under those strategies that state it."""
    times = {name: getattr(strategy, "come_up_s", None) for name, strategy in strategies.items()}
    return {name: float(seconds) for name, seconds in times.items() if seconds is not None}


def parse_time(text: str) -> float:
    """Return the seconds that a text like ``90``, ``90s``, ``10m``, ``2h`` or ``1.5d`` means.

    Raises:
        ValueError: it has another form; the message is one line for people.
    """
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no time; write for example 90s, 10m, 2h or 1d")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def ends_in_s(options: Mapping[str, str]) -> float | None:
    """Return after how many seconds a RIF ends by its options (``time``), None if they say nothing.

    Raises:
        ValueError: it is no time.
    """
    return parse_time(options["time"]) if "time" in options else None


class Strategy(Protocol):
    """A way to start RIFs.

    It may have the attribute ``come_up_s``: how many seconds a RIF may take from its start to its first word,
    ``math.inf`` for as long as it takes. Without it that is ``Limits.bootstrap_timeout_s``.
    """

    async def run(self, order: RifOrder) -> str:
        """Start a RIF and return when nothing is left of it, saying how it ended.

        Cancellation takes the RIF down, within a second or two, and only then goes on. The RIF itself tells
        the RTS when it is up.

        Raises:
            OutOfSight: it cannot be seen any more, but may run; it is awaited for ``order.grace_s``.
            StrategyError, OSError: it could not be started, or ended in error; one line for people.
        """
        ...
