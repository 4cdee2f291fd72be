"""How strategies are run for RIFs, and blocks asked for by those who run in the same process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from gspc_trio.components.provision.blocks import BlockMoved, BlockNews, BlockOrder, BlockOver
from gspc_trio.components.provision.strategy import (
    OutOfSight,
    RifOrder,
    StartedAgain,
    Strategy,
    StrategyError,
    come_up_times,
    ends_in_s,
)
from gspc_trio.components.rif.messages import DagReport
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.shell.peers import RtsError
from gspc_trio.components.rts.site_messages import BY_HAND, BlockStatus
from gspc_trio.components.rts.state import ManagedRif, RifState
from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.core.resources import MEMORY_CLASS

if TYPE_CHECKING:
    from gspc_trio.components.provision.shell.enrolments import EnrolmentService

log: logging.Logger = logging.getLogger(__name__)


class StrategyRuns:
    """Runs strategies until nothing is left of a RIF, and tells the RTS machine how each run ended.

    Args:
        strategies: name -> how RIFs are started.
        token: what RIFs prove to know.
        issue: returns credentials for the TLS of a RIF, "" for none.
        grace_s: how long RIFs are to wait for their run-time system.
        put: takes an event for the machine.
        enrolments: returns where RIFs of blocks enrol.
    """

    def __init__(
        self,
        strategies: Mapping[str, Strategy],
        token: bytes,
        issue: Callable[[RifId], str],
        grace_s: float,
        put: Callable[[events.RifEnded | events.RifWaits | events.RifOrdered], None],
        enrolments: Callable[[], EnrolmentService],
    ) -> None:
        self._strategies = dict(strategies)
        self._token = token
        self._issue = issue
        self._grace_s = grace_s
        self._put = put
        self._enrolments = enrolments
        self._scopes: dict[tuple[RifId, int], trio.CancelScope] = {}

    def add(self, name: str, strategy: Strategy) -> None:
        """Run RIFs by one more strategy."""
        self._strategies[name] = strategy

    def remove(self, name: str) -> None:
        """Run no further RIFs by a strategy; those that it runs go on."""
        del self._strategies[name]

    async def run(self, action: actions.StartRif, addresses: Sequence[str]) -> None:
        """Start a RIF that is to reach the RTS at one of the addresses; return when it has ended."""
        key = (action.rif_id, action.incarnation)
        order = RifOrder(
            action.rif_id,
            action.incarnation,
            action.host,
            action.cores,
            action.options,
            tuple(addresses),
            self._token,
            self._issue(action.rif_id),
            grace_s=self._grace_s,
            tell=lambda reason: self._put(events.RifWaits(*key, reason)),
            ordered=lambda: self._put(events.RifOrdered(*key)),
            block=action.block,
            node=action.node,
            nodes=action.nodes,
            taken=action.taken,
            enrolments=self._enrolments() if action.block else None,
        )
        reason, adrift, again = "it was ended", False, False
        try:
            with trio.CancelScope() as scope:
                self._scopes[key] = scope
                strategy = self._strategies.get(action.strategy)
                if strategy is None:  # an earlier run-time system had it
                    raise StrategyError(f"the strategy {action.strategy!r} is not there any more")
                reason = await strategy.run(order)
        except Exception as error:
            log.debug("strategy %s for %s", action.strategy, action.rif_id, exc_info=True)
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            adrift, again = isinstance(error, OutOfSight), isinstance(error, StartedAgain)
        finally:
            del self._scopes[key]
            if order.said:
                reason = f"{reason}; it said: {' | '.join(order.said)}"
            self._put(events.RifEnded(*key, reason, adrift, again))

    def kill(self, action: actions.KillRif) -> None:
        """End a RIF now."""
        scope = self._scopes.get((action.rif_id, action.incarnation))
        if scope is not None:  # else it has ended, and RifEnded is on its way
            scope.cancel()


class BlockService(Protocol):
    """What blocks need of the service."""

    machine: Rts

    def ask(
        self,
        event: Callable[[int], events.RtsEvent],
        answered: Callable[[actions.Answer | actions.QuestionRefused], None],
    ) -> None:
        """Put a question to the machine, whose answer comes later."""
        ...

    async def teardown(self, rif_ids: Sequence[RifId]) -> tuple[RifId, ...]:
        """Stop these RIFs."""
        ...

    async def remove(
        self, rif_id: RifId, resource_ids: Sequence[ResourceId], policy: str = "lose"
    ) -> DagReport:
        """Remove resources from a RIF."""
        ...


class Blocks:
    """The blocks of a run-time system, for those who ask for them in its process.

    Args:
        service: of the run-time system.
        runs: of its strategies.
    """

    def __init__(self, service: BlockService, runs: StrategyRuns) -> None:
        self._service = service
        self._runs = runs
        self._tell: dict[str, Callable[[BlockNews], None]] = {}
        self._by_hand: dict[str, BlockMoved] = {}

    def add_strategy(self, name: str, strategy: Strategy) -> None:
        """Let blocks be opened by one more strategy, such as that of a site."""
        self._runs.add(name, strategy)
        self._service.machine.add_strategy(name, come_up_times({name: strategy}).get(name))

    def remove_strategy(self, name: str) -> None:
        """Open no further block by a strategy; those of before are over."""
        self._runs.remove(name)
        self._service.machine.remove_strategy(name)

    def open(self, order: BlockOrder, tell: Callable[[BlockNews], None]) -> None:
        """Open a block: its batch job is submitted, and each of its nodes becomes a RIF when it runs.

        Args:
            order: what is wanted.
            tell: takes what becomes of it, in this task or another; ``BlockOver`` comes last, and always.
        """
        self._tell[order.block] = tell
        asked = (order.block,), order.strategy, order.cores, dict(order.options), order.nodes, True

        def answered(answer: actions.Answer | actions.QuestionRefused) -> None:
            if isinstance(answer, actions.QuestionRefused):
                self.told(BlockOver(order.block, "refused", answer.reason))
            elif isinstance(answer.result, actions.Bootstrapped) and not self.rifs(order.block):
                reason = next(iter(answer.result.failed.values()), "it was ended")
                self.told(BlockOver(order.block, "refused", reason))

        self._service.ask(lambda ask: events.BootstrapAsked(ask, *asked), answered)

    def follow(self, block: str, tell: Callable[[BlockNews], None]) -> None:
        """Hear of a block that an earlier run-time system has opened, from now on."""
        self._tell[block] = tell

    def rifs(self, block: str) -> tuple[ManagedRif, ...]:
        """Return the RIFs of a block that are there, or are to come, by node; not to be changed."""
        found = [rif for rif in self._service.machine.rifs if rif.block == block]
        return tuple(sorted(found, key=lambda rif: rif.node))

    def by_hand(self) -> tuple[BlockStatus, ...]:
        """Return how the blocks are that people have started, and no site."""
        rifs: dict[str, list[ManagedRif]] = {}
        for rif in self._service.machine.rifs:
            if rif.block and "/" not in rif.block and rif.state is not RifState.FAILED:
                rifs.setdefault(rif.block, []).append(rif)
        now = trio.current_time()
        return tuple(_status(block, found, self._by_hand.get(block), now) for block, found in rifs.items())

    async def suspend(self, block: str) -> None:
        """Give the block no more tasks, and end it with its last one; return when its RIFs are gone."""
        async with trio.open_nursery() as nursery:
            for rif in self.rifs(block):
                nursery.start_soon(self._suspend_node, rif)

    async def _suspend_node(self, rif: ManagedRif) -> None:
        try:
            if rif.state is RifState.UP:
                tops = [name for name, one in rif.resources.items() if not one.parents]
                work = [name for name in tops if rif.resources[name].resource_class != MEMORY_CLASS]
                if work:
                    await self._service.remove(rif.rif_id, work, "wait")
            await self._service.teardown([rif.rif_id])
        except RtsError as error:
            log.info("%s of the block %s: %s", rif.rif_id, rif.block, error)  # it is gone

    async def cancel(self, block: str) -> None:
        """End a block now, with what runs there; return when its RIFs are gone."""
        rifs = [rif.rif_id for rif in self.rifs(block)]
        if rifs:
            await self._service.teardown(rifs)

    def told(self, news: BlockNews) -> None:
        """Take what has become of a block."""
        tell = self._tell.get(news.block)
        if isinstance(news, BlockOver):
            self._tell.pop(news.block, None)
            self._by_hand.pop(news.block, None)
        if tell is not None:
            tell(news)
        elif isinstance(news, BlockMoved):  # nobody follows those of people
            self._by_hand[news.block] = news


def _status(block: str, rifs: Sequence[ManagedRif], moved: BlockMoved | None, now: float) -> BlockStatus:
    """Return how a block is that somebody has started.

    Args:
        block: what it is called.
        rifs: those of its nodes that are there, or are to come.
        moved: what the batch system has said last.
        now: the time.
    """
    up = [rif for rif in rifs if rif.state is RifState.UP]
    left_s = max((left for rif in up if (left := rif.ends_in_s(now)) is not None), default=None)
    state, detail = ("submitted", rifs[0].shown[1]) if moved is None else (moved.state, moved.reason)
    return BlockStatus(
        block,
        "running" if up else state,
        "" if up else detail,
        rifs[0].nodes,
        sum(resource.resource_class == "core" for rif in up for resource in rif.resources.values()),
        ends_in_s(rifs[0].options) or 0.0,
        len(up),
        "" if moved is None else moved.job_id,
        left_s,
        BY_HAND,
    )
