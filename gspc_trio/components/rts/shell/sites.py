"""The shell of the machine of sites: blocks become RIFs of the run-time system."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import trio
from attrs import define, evolve, field
from msgspec.structs import replace

from gspc_trio.components.managers.shell.group import AnyManager
from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchState,
    Provider,
    QueryFailed,
)
from gspc_trio.components.provision.block_settings import BadBlockSettings
from gspc_trio.components.provision.blocks import (
    BlockMoved,
    BlockNews,
    BlockOrder,
    BlockOver,
    SavedBlock,
    SavedSite,
)
from gspc_trio.components.provision.find import ProviderError, find_provider, provider_names
from gspc_trio.components.provision.score import SiteOutcome, outcome_of
from gspc_trio.components.provision.shell.batch import BatchStrategy
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockKept,
    BlockUnwanted,
    BlockUsed,
    CancelBlock,
    FilesNotStaged,
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
    SiteWithdrawn,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import (
    BadSite,
    SiteSettings,
    site_settings,
    written,
)
from gspc_trio.components.provision.sites import Sites
from gspc_trio.components.provision.staging import block_options
from gspc_trio.components.provision.strategy import ends_in_s
from gspc_trio.components.provision.throttle import Limit
from gspc_trio.components.rm.events import Coming, Settled
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.shell.peers import RtsError
from gspc_trio.components.rts.shell.site_questions import (
    Outputs,
    check_request,
    no_block,
    node_to_come,
    printed,
    provider_by_hand,
    site_status,
    site_words,
    with_plan,
    with_script,
)
from gspc_trio.components.rts.shell.site_service import SiteQuestion, SiteService
from gspc_trio.components.rts.shell.strategy_runs import Blocks
from gspc_trio.components.rts.site_messages import (
    AddSite,
    BlockOutput,
    ChangeSite,
    EndBlock,
    GetBlockOutput,
    ListSites,
    SiteChange,
    SiteList,
    SiteStatus,
)
from gspc_trio.components.rts.state import ManagedRif, RifState, site_strategy
from gspc_trio.core.demand import DemandWanted, TaskDemand
from gspc_trio.core.ids import Counter, GrantId, JobId, RifId, host_name
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.protocol.address import MemoryAddress, parse_address
from gspc_trio.records.facts import BlockChanged, GrantChanged, Record, RifChanged, SiteChanged
from gspc_trio.records.shell.stream import RecordStream

log: logging.Logger = logging.getLogger(__name__)

OFFERED_NODES_MAX = 64
"""So many nodes of a site are told to the resource manager, which refuses what needs more at a time."""

OFFERED_CORES_MAX = 4096
"""Their cores, all together, unless one node has more."""


class SiteHost(Protocol):
    """What a run-time system does for its sites."""

    addresses: tuple[str, ...]
    records: RecordStream
    machine: Rts
    blocks: Blocks
    sites: SiteService
    rm: AnyManager

    def start_soon(self, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task for as long as the run-time system is there."""
        ...

    def saved_blocks(self) -> tuple[SavedBlock, ...]:
        """Return the blocks that there are, with where their files are."""
        ...


@define(eq=False)
class _Open:
    """A block that is not over.

    Attributes:
        rif_ids: of all that there were.
        is_known: whether the batch system has taken its job was answered.
        is_kept: an earlier run-time system has asked for it.
        held: grants of what it has, of jobs that do not say what runs.
    """

    rif_ids: set[RifId] = field(factory=set)
    is_known: bool = False
    is_kept: bool = False
    held: dict[GrantId, JobId] = field(factory=dict)


class SiteRuns(Performer[SitesAction]):
    """Drives the machine of sites.

    Args:
        host: the run-time system.
        throttles: of all sites together.
        is_attended: somebody can resume a site that has paused by itself.
    """

    def __init__(self, host: SiteHost, throttles: Mapping[str, Limit], is_attended: bool = True) -> None:
        self._host = host
        self._throttles = throttles
        self.machine: Sites = Sites(throttles, is_attended=is_attended)
        self._inbox: Inbox[SitesEvent] = Inbox()
        self._asks = Counter()
        self._answers: dict[int, Callable[[str], None]] = {}
        self._open: dict[str, _Open] = {}
        self._strategies: dict[str, str] = {}
        self._providers: dict[str, Provider] = {}
        self._outputs = Outputs()
        self._by_hand: set[str] = set()
        self._telling: set[JobId] = set()
        self._blocks_of_rifs: dict[RifId, str] = {}
        self._offered: dict[str, list[str]] = {}
        self._record = host.rm.record

    # What it is asked ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Drive the machine."""
        self._host.rm.record = self._note
        self._host.rm.why_refused = self.machine.withdrawn
        self._host.start_soon(self._drive)
        self._tell_of_others()

    def greet(self, peer: Peer) -> None:
        """Have a job that has joined say what it needs, if there is a site."""
        if self._offered:
            peer.post(DemandWanted(True))

    async def _drive(self) -> None:
        await drive(self.machine, self._inbox, self)

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._inbox.put(SitesStopped())

    def add(
        self,
        name: str,
        settings: SiteSettings,
        answered: Callable[[str], None],
        before: SavedSite | None = None,
        by_hand: bool = False,
        made: BatchStrategy | None = None,
    ) -> None:
        """Add a site; see SiteRunner. Its strategy may have been made."""
        strategy, unit_s, is_here = settings.provider, settings.blocks.time_unit_s, True
        provider: Provider | None = None
        if self._host.machine.has_blocks(strategy) and strategy not in provider_names():
            pass  # somebody has given the run-time system this strategy
        else:
            try:
                provider = find_provider(settings.provider, settings.via, settings.options.get("address", ""))
                check_request(provider, settings)
            except (ProviderError, BadRequest) as error:
                answered(f"site {name}: {error}")
                return
            if settings.asks_size:
                made = BatchStrategy(provider)
                made.host.begin(self._host.start_soon)
                add = partial(self.add, name, answered=answered, before=before, by_hand=by_hand)
                self._host.start_soon(partial(self._ask_size, name, made, settings, add, answered))
                return
            strategy, unit_s, is_here = site_strategy(name), float(provider.time_unit_s), provider.is_here
            made = None if self._host.machine.has_blocks(strategy) else made or BatchStrategy(provider)
        if not is_here and not self._is_reachable():
            answered(
                f"site {name}: its nodes cannot reach the run-time system, which listens at "
                f"{', '.join(self._host.addresses)}: start it with --tls --listen ADDRESS"
            )
            return
        try:
            settings = evolve(settings, blocks=evolve(settings.blocks, time_unit_s=unit_s))
        except BadBlockSettings as error:
            answered(f"site {name}: {error}")
            return

        def added(refusal: str) -> None:
            if not refusal:
                (self._by_hand.add if by_hand else self._by_hand.discard)(name)
                self._strategies[name] = strategy
                if provider is not None:
                    self._providers[name] = provider
                if made is not None:
                    self._host.blocks.add_strategy(strategy, made)
                self._keep_blocks(name)
            answered(refusal)

        known = ("", 0.0)
        if before is not None:  # with other settings it may go better
            known = before.paused if before.settings == written(settings) else "", before.history
        self._ask(lambda ask: SiteAdded(ask, name, settings, *known), added)

    def kept(self) -> tuple[SavedSite, ...]:
        """Return what the next run-time system is to know of the sites."""
        history = self.machine.scores.history
        return tuple(
            SavedSite(name, written(site.settings), site.paused, history(name), name in self._by_hand)
            for name, site in self.machine.sites.items()
        )

    async def _ask_size(
        self,
        name: str,
        made: BatchStrategy,
        settings: SiteSettings,
        add: Callable[..., None],
        answered: Callable[[str], None],
    ) -> None:
        """Add a site whose cluster says itself how large it is."""
        try:
            add(settings=settings.with_size(*await made.size()), made=made)
        except (QueryFailed, OSError) as error:
            answered(f"site {name}: {settings.provider}: {error}")

    def _keep_blocks(self, site: str) -> None:
        """Take in the blocks of a site that an earlier run-time system has asked for."""
        for rif in self._host.machine.rifs:
            if not rif.once or not rif.block.startswith(f"{site}/b"):
                continue
            if rif.block not in self._open:
                self._open[rif.block] = _Open(is_kept=True)
                self._host.blocks.follow(rif.block, self._news)
                walltime_s = ends_in_s(rif.options) or 0.0
                self._inbox.put(BlockKept(rif.block, site, rif.nodes, rif.cores, walltime_s))
            if rif.state is RifState.UP:
                self._serves(rif)

    def _serves(self, rif: ManagedRif) -> None:
        """A node of a block is up."""
        known = self._open[rif.block]
        known.rif_ids.add(rif.rif_id)
        self._blocks_of_rifs[rif.rif_id] = rif.block
        self._inbox.put(NodeServes(rif.block, rif.node, rif.rif_id, rif.until_s))

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
            if question.planned or question.check:
                self._host.start_soon(partial(self._answer_planned, call, question.check))
            else:
                call.reply(SiteList(self._statuses(), self._host.blocks.by_hand()))
        elif isinstance(question, GetBlockOutput):
            self._host.start_soon(partial(self._answer_output, call, question.block_id))
        elif isinstance(question, EndBlock):
            self._end_block(question.block_id, answered)
        elif isinstance(question, ChangeSite):
            change, name = _CHANGES[question.change], question.site
            self._ask(lambda ask: change(ask, name), answered)
        else:
            self._answer_add(question, answered)

    def _end_block(self, block_id: str, answered: Callable[[str], None]) -> None:
        if block_id in self.machine.blocks:
            self._ask(lambda ask: BlockUnwanted(ask, block_id), answered)
        elif self._host.blocks.rifs(block_id):  # somebody has started it
            self._host.start_soon(partial(self._end_by_hand, block_id, answered))
        else:
            by_hand = (block.block_id for block in self._host.blocks.by_hand())
            answered(no_block(block_id, (*by_hand, *self.machine.blocks)))

    async def _end_by_hand(self, block_id: str, answered: Callable[[str], None]) -> None:
        await self._cancel(block_id)
        answered("")

    def _answer_add(self, question: AddSite, answered: Callable[[str], None]) -> None:
        try:
            settings = site_settings(question.site, question.settings)
        except BadSite as error:
            answered(str(error))
            return
        self.add(question.site, settings, answered, by_hand=True)

    def _ask(self, event: Callable[[int], SitesEvent], answered: Callable[[str], None]) -> None:
        ask = self._asks.next()
        self._answers[ask] = answered
        self._inbox.put(event(ask))

    def why(self, awaited: Sequence[str]) -> str:
        """Return what people are told of the sites among what a request waits for, "" if there are none."""
        names = dict.fromkeys(name.partition("/")[0] for name in awaited)
        found = [site for site in map(self.machine.sites.get, names) if site is not None]
        now = trio.current_time()
        return "".join(f"; {site_words(self.machine, site, now)}" for site in found)

    def _statuses(self) -> tuple[SiteStatus, ...]:
        """Return how the sites are."""
        now, turns = trio.current_time(), self._host.sites.turns
        files = None if turns is None else turns.gate
        return tuple(site_status(self.machine, site, now, files) for site in self.machine.sites.values())

    async def _answer_planned(self, call: IncomingCall, check: bool) -> None:
        """Answer how the sites are and what is planned, with scripts, and what the batch systems say."""
        plans = self.machine.preview(trio.current_time())
        settings = {name: site.settings for name, site in self.machine.sites.items()}
        found = []
        for status in self._statuses():
            name = status.site
            told = with_plan(status, settings[name], plans[name], check)
            provider = self._providers.get(name)
            if provider is not None:
                blocks = [
                    await with_script(
                        provider, self._options(settings[name], block.walltime_s), name, block, check
                    )
                    for block in told.planned
                ]
                told = replace(told, planned=tuple(blocks))
            found.append(told)
        call.reply(SiteList(tuple(found), self._host.blocks.by_hand()))

    async def _answer_output(self, call: IncomingCall, block_id: str) -> None:
        """Answer what the batch job of a block has printed."""
        there, over = {block.block: block for block in self._host.saved_blocks()}, self._outputs.over
        if block_id in there:
            rif = next(iter(self._host.blocks.rifs(block_id)), None)
            provider = self._providers.get(block_id.partition("/")[0]) or provider_by_hand(block_id, rif)
            call.reply(BlockOutput(await printed(provider, there[block_id])))
        elif block_id in over:
            call.reply(over[block_id])
        elif block_id in self.machine.blocks:
            call.reply(BlockOutput(()))
        else:
            call.fail(RtsError(no_block(block_id, (*there, *self.machine.blocks, *over))))

    # What it is told ----------------------------------------------------------------------------------------

    def demand(self, said: TaskDemand, peer: Peer | None = None) -> None:
        """A job says what its tasks need and what runs: its grants, which it keeps idle, do not count."""
        if peer is not None and not self._offered:
            return  # nobody wants to hear it any more
        if peer is not None and said.job not in self._telling:
            self._telling.add(said.job)
            for block_id, known in self._open.items():
                own = [grant_id for grant_id, job in known.held.items() if job == said.job]
                self._not_held(block_id, known, own)
        elif peer is None:
            self._telling.discard(said.job)
        self._inbox.put(said, peer)

    def rif_changed(self, record: RifChanged) -> None:
        """Take a record of a RIF: it may be that of a node of a block."""
        block_id, _, node = record.host.rpartition(".")
        known = self._open.get(block_id)
        if known is None:
            self._tell_of_others()
        elif record.state == "up":
            for rif in self._host.blocks.rifs(block_id):
                if rif.rif_id == record.rif_id:
                    self._serves(rif)
        elif record.state in ("lost", "failed", "down"):
            self._inbox.put(NodeEnded(block_id, int(node), record.detail))
            if known.is_kept and not self._host.blocks.rifs(block_id):
                # Nobody says so of a block of before whose batch job could not be looked for.
                self._news(BlockOver(block_id, "missing", record.detail))

    def has_told(self, host: str) -> bool:
        """Return whether people were told that the block is over of which this host is."""
        return host.rpartition(".")[0] in self._outputs.over

    def files_failed(self, rif_id: RifId, detail: str) -> None:
        """See SiteRunner."""
        block_id = self._blocks_of_rifs.get(rif_id)
        if block_id is not None:
            self._inbox.put(FilesNotStaged(block_id, detail))

    def _news(self, news: BlockNews) -> None:
        """Take what becomes of a block."""
        block_id, known = news.block, self._open.get(news.block)
        if known is None:
            return
        if isinstance(news, BlockMoved):
            self._know(block_id, known, news.job_id, news.text)
            if news.state in _SHOWN:
                state = BatchState(news.state)
                self._inbox.put(BatchMoved(block_id, state, news.reason, news.job_id, news.is_hopeless))
        elif isinstance(news, BlockOver):
            del self._open[block_id]
            for rif_id in known.rif_ids:
                del self._blocks_of_rifs[rif_id]
            self._outputs.note(block_id, news.said, news.reason)
            outcome = SiteOutcome.HOPELESS if news.how == "hopeless" else None
            outcome = outcome_of(news.reason) if news.how == "refused" else outcome
            is_unclear = outcome is None and not known.rif_ids and news.said
            printed = f"; it said: {news.said[-1]}" if is_unclear else ""
            if not (news.how == "refused" or news.was_cancelled or known.rif_ids):
                log.warning("block %s is over without a worker: %s%s", block_id, news.reason, printed)
            self._inbox.put(BlockGone(block_id, news.reason + printed, outcome))

    def _know(self, block_id: str, known: _Open, batch_id: str, why: str = "") -> None:
        """The batch system has answered, clearly or not, whether it has taken the job of a block."""
        if batch_id or why or not known.is_known:
            known.is_known = True
            self._inbox.put(BatchAnswered(block_id, batch_id, "" if batch_id else why))

    def _tell_of_others(self) -> None:
        """Tell the machine whether there are hosts that belong to no site."""
        rifs = (rif for rif in self._host.machine.rifs if rif.state is not RifState.FAILED)
        there = any(rif.block not in self._open for rif in rifs)
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
            if not record.held:
                self._not_held(block_id, known, [record.grant_id])
            elif record.job not in self._telling:
                known.held[record.grant_id] = record.job
                self._inbox.put(BlockUsed(block_id))

    def _not_held(self, block_id: str, known: _Open, grant_ids: Sequence[GrantId]) -> None:
        """These grants do not count any more."""
        gone = [known.held.pop(grant_id, None) for grant_id in grant_ids]
        if any(gone) and not known.held:
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
        self._settle_offer(action.site)
        if not action.nodes:
            self._forget_site(action.site)
            return
        if not self._offered:
            self._want_demand(True)
        nodes = min(action.nodes, OFFERED_NODES_MAX, max(1, OFFERED_CORES_MAX // max(1, action.cores)))
        names = [f"{action.site}/{number}" for number in range(nodes)]
        for name in names:
            self._host.rm.tell(Coming(name, node_to_come(name, action.cores), action.site))
        self._offered[action.site] = names

    @performs(SiteWithdrawn)
    def _site_withdrawn(self, action: SiteWithdrawn) -> None:
        """Have the resource manager refuse what only the site could meet; jobs still say what they need."""
        self._settle_offer(action.site)
        self._offered[action.site] = []

    def _settle_offer(self, site: str) -> None:
        for name in self._offered.pop(site, ()):
            self._host.rm.tell(Settled(name))

    def _forget_site(self, site: str) -> None:
        """A site is gone: another one of its name may have another batch system."""
        strategy = self._strategies.pop(site)
        if self._providers.pop(site, None) is not None:
            self._host.blocks.remove_strategy(strategy)
        if not self._offered:
            self._want_demand(False)
            for job in list(self._telling):
                self.demand(TaskDemand(job))

    def _want_demand(self, wanted: bool) -> None:
        for peer in self._host.rm.peers.values():
            peer.post(DemandWanted(wanted))

    @performs(SubmitBlock)
    def _submit_block(self, action: SubmitBlock) -> None:
        self._open[action.block_id] = _Open()
        options = self._options(self.machine.sites[action.site].settings, action.walltime_s)
        strategy = self._strategies[action.site]
        order = BlockOrder(action.block_id, strategy, action.nodes, action.cores, options)
        self._host.blocks.open(order, self._news)

    def _options(self, settings: SiteSettings, walltime_s: float) -> dict[str, str]:
        """Return the options of a block of a site."""
        options = {**settings.options, "time": f"{walltime_s:g}s"}
        return options | block_options(settings.staging, self._throttles, settings.throttles)

    @performs(SuspendBlock)
    def _suspend_block(self, action: SuspendBlock) -> None:
        self._host.start_soon(partial(self._host.blocks.suspend, action.block_id))

    @performs(CancelBlock)
    def _cancel_block(self, action: CancelBlock) -> None:
        self._host.start_soon(partial(self._cancel, action.block_id))

    async def _cancel(self, block_id: str) -> None:
        with suppress(RtsError):  # it is gone, or all is being taken down
            await self._host.blocks.cancel(block_id)

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


_SHOWN = {BatchState.QUEUED, BatchState.HELD, BatchState.RUNNING}
"""States of which the machine is told; the others end a block, or say nothing."""

_CHANGES: dict[SiteChange, Callable[[int, str], SitesEvent]] = {
    SiteChange.PAUSE: SitePaused,
    SiteChange.RESUME: SiteResumed,
    SiteChange.REMOVE: SiteRemoved,
}
