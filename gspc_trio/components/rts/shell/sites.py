"""The shell of the machine of sites: blocks become RIFs of the run-time system."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping

import trio
from attrs import define, evolve, field

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.find import ProviderError, find_provider
from gspc_trio.components.provision.score import SiteOutcome
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockUnwanted,
    BlockUsed,
    CancelBlock,
    HostsThere,
    NodeEnded,
    NodeServes,
    RefuseDemand,
    SiteAdded,
    SiteAnswered,
    SiteOffers,
    SitePaused,
    SiteRemoved,
    SiteResumed,
    SitesAction,
    SitesEvent,
    SitesStopped,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import BadSite, SiteSettings, site_settings
from gspc_trio.components.provision.site_state import KnownSite, SiteBlock
from gspc_trio.components.provision.sites import Sites
from gspc_trio.components.provision.throttle import Limit
from gspc_trio.components.rm.events import Coming, Rested, Settled
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.messages import (
    AddSite,
    BlockStatus,
    ChangeSite,
    EndBlock,
    ListSites,
    SiteChange,
    SiteList,
    SiteStatus,
)
from gspc_trio.components.rts.shell.peers import RtsError
from gspc_trio.components.rts.shell.site_desk import SiteHost, SiteQuestion
from gspc_trio.core.demand import DemandWanted, TaskDemand
from gspc_trio.core.ids import Counter, GrantId, RifId, host_name
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.protocol.address import MemoryAddress, parse_address
from gspc_trio.records.facts import BlockChanged, GrantChanged, Record, RifChanged, SiteChanged

log = logging.getLogger(__name__)

OFFERED_NODES_MAX = 64
"""So many nodes of a site are told to the resource manager, which refuses what needs more at a time."""

OFFERED_CORES_MAX = 4096
"""Their cores, all together, unless one node has more."""

USED_S = 1.0
"""A block that is in use is told to be so once in so many seconds."""

_WAITS = re.compile(r"\S+ job (\S+) is (queued|held|running)(?:: (.*))?", re.DOTALL)
_NEVER = "can never run as it was asked for"


@define(eq=False)
class _Open:
    """A block whose RIFs the run-time system has.

    Attributes:
        hosts: name of a host -> its node; those that are over are left out.
        rif_ids: of all that there were.
        is_known: the batch system has taken its job.
        held: grants of what it has.
        used_at: when it was last told to be in use.
    """

    hosts: dict[str, int]
    rif_ids: set[RifId] = field(factory=set)
    is_known: bool = False
    held: set[GrantId] = field(factory=set)
    used_at: float = 0.0


class SiteRuns(Performer[SitesAction]):
    """Drives the machine of sites.

    Args:
        host: the run-time system.
        throttles: of all sites together.
    """

    def __init__(self, host: SiteHost, throttles: Mapping[str, Limit]) -> None:
        self._host = host
        self.machine = Sites(throttles)
        self._inbox: Inbox[SitesEvent] = Inbox()
        self._asks = Counter()
        self._answers: dict[int, Callable[[str], None]] = {}
        self._open: dict[str, _Open] = {}
        self._block_of: dict[str, str] = {}
        self._blocks_of_rifs: dict[RifId, str] = {}
        self._offered: dict[str, list[str]] = {}
        self._record = host.rm.record

    # What it is asked ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Drive the machine, and have all jobs say what they need."""
        host = self._host
        host.rm.record = self._note
        host.start_soon(self._drive)
        self._tell_of_others()
        for peer in host.rm.peers.values():
            peer.post(DemandWanted(True))

    async def _drive(self) -> None:
        await drive(self.machine, self._inbox, self.perform)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._inbox.put(SitesStopped())

    def add(self, name: str, settings: SiteSettings, answered: Callable[[str], None]) -> None:
        """Add a site; ``answered`` is told "", or why not."""
        try:
            provider = find_provider(settings.provider)
            if settings.provider not in self._host.machine.strategies:
                raise ProviderError(f"the provider {settings.provider} cannot start blocks yet")
        except ProviderError as error:
            answered(f"site {name}: {error}")
            return
        unit_s = getattr(provider, "time_unit_s", settings.blocks.time_unit_s)
        settings = evolve(settings, blocks=evolve(settings.blocks, time_unit_s=float(unit_s)))
        if not self._is_reachable():
            answered(
                f"site {name}: its nodes cannot reach the run-time system, which listens at "
                f"{', '.join(self._host.addresses)}: start it with --tls --listen ADDRESS"
            )
            return
        self._ask(lambda ask: SiteAdded(ask, name, settings), answered)

    def _is_reachable(self) -> bool:
        """Return whether other hosts can reach the run-time system, should it listen at all."""
        found = [parse_address(address) for address in self._host.addresses]
        sockets = [one for one in found if not isinstance(one, MemoryAddress)]
        return not sockets or any(not one.is_loopback for one in sockets)

    def answer(self, call: IncomingCall, question: SiteQuestion) -> None:
        """Answer a client."""

        def answered(refusal: str) -> None:
            if refusal:
                call.fail(RtsError(refusal))
            else:
                call.reply(Done())

        if isinstance(question, ListSites):
            call.reply(self.status())
        elif isinstance(question, EndBlock):
            block_id = question.block_id
            self._ask(lambda ask: BlockUnwanted(ask, block_id), answered)
        elif isinstance(question, ChangeSite):
            change, name = _CHANGES[question.change], question.site
            self._ask(lambda ask: change(ask, name), answered)
        else:
            self._answer_add(question, answered)

    def _answer_add(self, question: AddSite, answered: Callable[[str], None]) -> None:
        try:
            settings = site_settings(question.site, question.settings)
        except BadSite as error:
            answered(str(error))
            return
        self.add(question.site, settings, answered)

    def _ask(self, event: Callable[[int], SitesEvent], answered: Callable[[str], None]) -> None:
        ask = self._asks.next()
        self._answers[ask] = answered
        self._inbox.put(event(ask))

    def status(self) -> SiteList:
        """Return how the sites are."""
        now = trio.current_time()
        return SiteList(tuple(_status(site, now) for site in self.machine.sites.values()))

    # What it is told ----------------------------------------------------------------------------------------

    def demand(self, said: TaskDemand, peer: Peer | None = None) -> None:
        """A job says what its tasks need."""
        self._inbox.put(said, peer)

    def rif_changed(self, record: RifChanged) -> None:
        """Take a record of a RIF: it may be a node of a block."""
        block_id = self._block_of.get(record.host)
        if block_id is None:
            self._tell_of_others()
            return
        known = self._open[block_id]
        node = known.hosts.get(record.host)
        if node is None:
            return
        known.rif_ids.add(record.rif_id)
        self._blocks_of_rifs[record.rif_id] = block_id
        if record.state == "starting":
            self._waits(block_id, known, record.detail)
        elif record.state == "up":
            ends = [rif.until_s for rif in self._host.machine.rifs if rif.rif_id == record.rif_id]
            self._know(block_id, known, "")
            self._inbox.put(NodeServes(block_id, node, record.rif_id, ends[0] if ends else None))
        elif record.state in ("lost", "failed", "down"):
            self._inbox.put(NodeEnded(block_id, node, record.detail))
            self._node_over(block_id, known, record)

    def _waits(self, block_id: str, known: _Open, detail: str) -> None:
        """A node waits, and its strategy says where the job of the block is."""
        found = _WAITS.fullmatch(detail)
        if found is not None:
            self._know(block_id, known, found[1])
            self._inbox.put(BatchMoved(block_id, BatchState(found[2]), found[3] or "", found[1]))
        elif detail:
            self._know(block_id, known, "")

    def _know(self, block_id: str, known: _Open, batch_id: str) -> None:
        if not known.is_known or batch_id:
            known.is_known = True
            self._inbox.put(BatchAnswered(block_id, batch_id))

    def _node_over(self, block_id: str, known: _Open, record: RifChanged) -> None:
        """A node of a block is over: it is not started again, and its block is over with the last one."""
        if record.state != "down":
            rif_id = record.rif_id
            self._host.ask(lambda ask: events.TeardownAsked(ask, (rif_id,)), lambda _: None)
        known.hosts.pop(record.host, None)
        if known.hosts:
            return
        if _NEVER in record.detail:
            self._inbox.put(BatchMoved(block_id, BatchState.QUEUED, record.detail, is_hopeless=True))
        self._gone(block_id, known, record.detail)

    def _gone(self, block_id: str, known: _Open, reason: str) -> None:
        del self._open[block_id]
        for host in [host for host, block in self._block_of.items() if block == block_id]:
            del self._block_of[host]
        for rif_id in known.rif_ids:
            self._blocks_of_rifs.pop(rif_id, None)
        outcome = None if known.is_known else SiteOutcome.REFUSED
        self._inbox.put(BlockGone(block_id, reason, outcome))

    def _tell_of_others(self) -> None:
        """Tell the machine whether there are hosts that belong to no site."""
        there = any(rif.host not in self._block_of for rif in self._host.machine.rifs)
        self._inbox.put(HostsThere(there))

    def _note(self, record: Record) -> None:
        """Take a record of the resource manager: a block may be in use from now on, or idle."""
        self._record(record)
        if type(record) is not GrantChanged:
            return
        for block_id in {self._blocks_of_rifs.get(host_name(name)) for name in record.resources} - {None}:
            assert block_id is not None
            known = self._open.get(block_id)
            if known is None:
                continue
            if record.held:
                known.held.add(record.grant_id)
                if len(known.held) == 1 or record.at_s >= known.used_at + USED_S:
                    known.used_at = record.at_s
                    self._inbox.put(BlockUsed(block_id))
            elif record.grant_id in known.held:
                known.held.discard(record.grant_id)
                if not known.held:
                    self._inbox.put(BlockIdle(block_id))

    # What the machine decides -------------------------------------------------------------------------------

    @performs(SiteAnswered)
    def _site_answered(self, action: SiteAnswered) -> None:
        answered = self._answers.pop(action.ask, None)
        if answered is not None:
            answered(action.refusal)

    @performs(SiteOffers)
    def _site_offers(self, action: SiteOffers) -> None:
        """Tell the resource manager what the site could bring, so that requests which need it wait."""
        for name in self._offered.pop(action.site, ()):
            self._host.rm.tell(Settled(name))
        nodes = min(action.nodes, OFFERED_NODES_MAX, max(1, OFFERED_CORES_MAX // max(1, action.cores)))
        names = [f"{action.site}/{number}" for number in range(nodes)]
        for name in names:
            self._host.rm.tell(Coming(name, _node(name, action.cores), action.site))
        self._offered[action.site] = names

    @performs(SubmitBlock)
    def _submit_block(self, action: SubmitBlock) -> None:
        site = self.machine.sites[action.site]
        block_id, settings = action.block_id, site.settings
        hosts = {f"{block_id}.{node}": node for node in range(action.nodes)}
        known = self._open[block_id] = _Open(hosts)
        self._block_of |= dict.fromkeys(hosts, block_id)
        options = {**settings.options, "time": f"{action.walltime_s:g}s"}

        def answered(answer: actions.Answer | actions.QuestionRefused) -> None:
            if isinstance(answer, actions.QuestionRefused) and block_id in self._open:
                self._gone(block_id, known, answer.reason)

        self._host.ask(
            lambda ask: events.BootstrapAsked(ask, tuple(hosts), settings.provider, action.cores, options),
            answered,
        )

    @performs(SuspendBlock)
    def _suspend_block(self, action: SuspendBlock) -> None:
        known = self._open.get(action.block_id)
        if known is not None:
            rifs = [rif for rif in self._host.machine.rifs if rif.rif_id in known.rif_ids]
            names = tuple(one.resource_id for rif in rifs for one in rif.usable())
            if names:
                self._host.rm.tell(Rested(names))

    @performs(CancelBlock)
    def _cancel_block(self, action: CancelBlock) -> None:
        known = self._open.get(action.block_id)
        if known is not None:
            rifs = tuple(rif.rif_id for rif in self._host.machine.rifs if rif.host in known.hosts)
            self._host.ask(lambda ask: events.TeardownAsked(ask, rifs), lambda _: None)

    @performs(RefuseDemand)
    def _refuse_demand(self, action: RefuseDemand) -> None:
        peer = self._host.rm.peers.get(action.job)
        if peer is not None:
            peer.post(action.refused)

    @performs(SiteChanged)
    def _record_site(self, record: SiteChanged) -> None:
        level = logging.INFO if record.state in ("open", "removed") else logging.WARNING
        log.log(level, "site %s is %s%s", record.site, record.state, record.detail and f": {record.detail}")
        self._host.records.append(record)

    @performs(BlockChanged)
    def _record_block(self, record: BlockChanged) -> None:
        log.info("block %s is %s%s", record.block_id, record.state, record.detail and f": {record.detail}")
        self._host.records.append(record)


_CHANGES: dict[SiteChange, Callable[[int, str], SitesEvent]] = {
    SiteChange.PAUSE: SitePaused,
    SiteChange.RESUME: SiteResumed,
    SiteChange.REMOVE: SiteRemoved,
}


def _node(name: str, cores: int) -> tuple[Resource, ...]:
    """Return what a node will bring at least; nobody knows its memory yet."""
    node = Resource(f"{name}.node", "node", memory_bytes=1 << 62)
    socket = Resource(f"{name}.socket0", "socket", (node.resource_id,))
    below = (Resource(f"{name}.core{number}", "core", (socket.resource_id,)) for number in range(cores))
    return (node, socket, *below)


def _status(site: KnownSite, now: float) -> SiteStatus:
    (state, detail), settings = site.shown, site.settings
    blocks = settings.blocks
    return SiteStatus(
        site.name,
        state,
        detail,
        settings.provider,
        blocks.slots,
        blocks.max_nodes,
        blocks.cores_per_node,
        blocks.max_time_s,
        None if site.retry_at is None else max(0.0, site.retry_at - now),
        tuple(_block_status(block, now) for block in site.blocks.values()),
    )


def _block_status(block: SiteBlock, now: float) -> BlockStatus:
    state, detail = block.shown
    return BlockStatus(
        block.block_id,
        state,
        detail,
        block.nodes,
        block.cores,
        block.walltime_s,
        len(block.up),
        block.batch_id,
        None if block.ends_at is None else max(0.0, block.ends_at - now),
        block.why,
    )
