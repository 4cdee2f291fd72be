"""Where a run-time system hears of sites: nothing of them is loaded before the first one is added."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

import trio

from gspc_trio.components.provision.messages import FilesFailed, TurnOver, WantTurn
from gspc_trio.components.rts.site_messages import (
    AddSite,
    BlockStatus,
    ChangeSite,
    EndBlock,
    GetBlockOutput,
    ListSites,
    SiteList,
)
from gspc_trio.components.rts.state import ManagedRif
from gspc_trio.core.demand import TaskDemand
from gspc_trio.core.ids import JobId, RifId
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.records.facts import RifChanged

if TYPE_CHECKING:
    from gspc_trio.components.provision.blocks import SavedSite
    from gspc_trio.components.provision.site_settings import SiteSettings, SitesFile
    from gspc_trio.components.rts.shell.site_turns import SiteTurns

log: logging.Logger = logging.getLogger(__name__)

SiteQuestion: TypeAlias = ListSites | AddSite | ChangeSite | EndBlock | GetBlockOutput
"""What clients may ask about sites."""

SITE_QUESTIONS = (ListSites, AddSite, ChangeSite, EndBlock, GetBlockOutput)
"""The same, as kinds."""


class SiteRunner(Protocol):
    """What serves the sites of a run-time system."""

    def start(self) -> None:
        """Begin."""
        ...

    def greet(self, peer: Peer) -> None:
        """A job has joined."""
        ...

    def add(
        self,
        name: str,
        settings: SiteSettings,
        answered: Callable[[str], None],
        before: SavedSite | None = None,
        by_hand: bool = False,
    ) -> None:
        """Add a site.

        Args:
            name: of the site.
            settings: of it.
            answered: is told "", or why not.
            before: what an earlier run-time system knew of it, None if it had none.
            by_hand: nobody gives it again to the next run-time system.
        """
        ...

    def kept(self) -> tuple[SavedSite, ...]:
        """Return what the next run-time system is to know of the sites."""
        ...

    def answer(self, call: IncomingCall, question: SiteQuestion) -> None:
        """Answer a client."""
        ...

    def why(self, awaited: Sequence[str]) -> str:
        """Return what people are told of the sites among what a request waits for."""
        ...

    def demand(self, said: TaskDemand, peer: Peer | None = None) -> None:
        """A job says what its tasks need."""
        ...

    def rif_changed(self, record: RifChanged) -> None:
        """A RIF has changed."""
        ...

    def has_told(self, host: str) -> bool:
        """Return whether people were told that the block is over of which this host is."""
        ...

    def files_failed(self, rif_id: RifId, detail: str) -> None:
        """Files of a task could not be staged on this host, for which the task cannot be blamed."""
        ...

    def stop(self) -> None:
        """Ask for nothing any more."""
        ...


class SiteService:
    """Takes what clients, jobs and RIFs say that concerns sites.

    Args:
        load: returns what serves sites, given the throttles of all together; called for the first one.
        by_hand: returns how the blocks are that are of no site.
        rifs: returns the RIFs that there are.

    Attributes:
        is_attended: somebody can resume a site that has paused by itself: tasks wait for that.
        turns: of file transfers and file operations, None before the first is wanted.
    """

    def __init__(
        self,
        load: Callable[[Mapping[str, int | None]], SiteRunner],
        by_hand: Callable[[], tuple[BlockStatus, ...]],
        rifs: Callable[[], Iterable[ManagedRif]],
    ) -> None:
        self.is_attended = True
        self._load = load
        self._by_hand = by_hand
        self._rifs = rifs
        self._throttles: Mapping[str, int | None] = {}
        self.turns: SiteTurns | None = None
        self._runs: SiteRunner | None = None

    def open(self, throttles: Mapping[str, int | None] = MappingProxyType({})) -> SiteRunner:
        """Return what serves the sites; ``throttles`` of all together count if these are the first."""
        if self._runs is None:
            self._throttles = throttles
            self._runs = self._load(throttles)
            self._runs.start()
        return self._runs

    async def add(self, given: SitesFile, before: Sequence[SavedSite] = ()) -> str:
        """Add sites; return why one of them cannot be had, or "".

        Args:
            given: by the user.
            before: those of an earlier run-time system.
        """
        runs, known = self.open(given.throttles), {saved.site: saved for saved in before}
        refusals = [
            await _added(runs, name, settings, known.get(name)) for name, settings in given.sites.items()
        ]
        return "; ".join(filter(None, refusals))

    async def add_again(self, before: Sequence[SavedSite]) -> None:
        """Add those sites of an earlier run-time system that nobody gives again."""
        from gspc_trio.components.provision.site_settings import site_settings  # only here: few have sites

        there = {site.site for site in self.kept()}
        for saved in before:
            if saved.by_hand and saved.site not in there:
                try:
                    settings = site_settings(saved.site, saved.settings)
                    refusal = await _added(self.open(), saved.site, settings, saved, by_hand=True)
                except ValueError as error:
                    refusal = str(error)
                if refusal:
                    log.warning("a site of before cannot be had any more: %s", refusal)

    def kept(self) -> tuple[SavedSite, ...]:
        """Return what the next run-time system is to know of the sites."""
        return () if self._runs is None else self._runs.kept()

    def answer(self, call: IncomingCall, question: SiteQuestion) -> None:
        """Answer a client, now or when it is done."""
        if isinstance(question, ListSites) and self._runs is None:
            call.reply(SiteList((), self._by_hand()))
        else:
            self.open().answer(call, question)

    def why(self, awaited: Sequence[str]) -> str:
        """Return what people are told of the sites among what a request waits for, "" if there are none."""
        return "" if self._runs is None else self._runs.why(awaited)

    def greet(self, peer: Peer) -> None:
        """A job has joined."""
        if self._runs is not None:
            self._runs.greet(peer)

    def demand(self, peer: Peer, job: JobId, said: TaskDemand) -> None:
        """A job says what its tasks need."""
        if said.job != job:
            drop_offender(peer, f"job {job} sent TaskDemand in the name of {said.job}")
        elif self._runs is not None:
            self._runs.demand(said, peer)

    def job_gone(self, job: JobId) -> None:
        """A job needs nothing any more."""
        if self._runs is not None:
            self._runs.demand(TaskDemand(job))

    def rif_changed(self, record: RifChanged) -> None:
        """A RIF has changed."""
        if self._runs is not None:
            self._runs.rif_changed(record)

    def heard(self, peer: Peer, said: WantTurn | TurnOver | FilesFailed) -> None:
        """A host says something of the files of its tasks."""
        if isinstance(said, FilesFailed):
            if self._runs is not None:
                self._runs.files_failed(peer.name, said.detail)
        elif isinstance(said, TurnOver):
            if self.turns is not None:
                self.turns.over(peer, said)
        else:
            rif = next((rif for rif in self._rifs() if rif.rif_id == peer.name), None)
            if rif is not None:
                if self.turns is None:
                    from gspc_trio.components.rts.shell.site_turns import SiteTurns  # only here: few need it

                    self.turns = SiteTurns(self._throttles)
                self.turns.want(peer, rif, said)

    def host_gone(self, peer: Peer) -> None:
        """The connection of a host is over."""
        if self.turns is not None:
            self.turns.gone(peer)

    def has_told(self, host: str) -> bool:
        """Return whether people were told that the block is over of which this host is."""
        return self._runs is not None and self._runs.has_told(host)

    def stop(self) -> None:
        """Ask for nothing any more: the run-time system stops."""
        if self._runs is not None:
            self._runs.stop()


async def _added(
    runs: SiteRunner, name: str, settings: SiteSettings, before: SavedSite | None, by_hand: bool = False
) -> str:
    """Add a site; return why it cannot be had, or ""."""
    done, refusals = trio.Event(), list[str]()

    def answered(refusal: str) -> None:
        refusals.append(refusal)
        done.set()

    runs.add(name, settings, answered, before, by_hand)
    await done.wait()
    return refusals[0]
