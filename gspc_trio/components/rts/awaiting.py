"""Who waits for RIFs: the RM, with requests that they will meet, and people who have asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from gspc_trio.components.rm.events import Coming, Settled
from gspc_trio.components.rts.actions import Answer, Bootstrapped, TellRm, TornDown
from gspc_trio.components.rts.state import ManagedRif, RifState
from gspc_trio.core.ids import RifId
from gspc_trio.core.resources import Resource


class ComingRifs:
    """RIFs on their way, for the first time or again, and what they will bring: the RM waits for them.

    It is kept up to date at the cost of what changed.
    """

    def __init__(self) -> None:
        self._changed: dict[RifId, ManagedRif] = {}
        self._told: dict[RifId, tuple[Resource, ...] | None] = {}

    def changed(self, rif: ManagedRif) -> None:
        """What this RIF will bring may be something else from now on."""
        self._changed[rif.rif_id] = rif

    def news(self) -> list[TellRm]:
        """Return what the RM is to be told of what comes, as far as that has changed."""
        news: list[TellRm] = []
        for rif_id, rif in self._changed.items():
            told = rif_id in self._told
            if not self.brings(rif):
                if told:
                    del self._told[rif_id]
                    news.append(TellRm(Settled(rif_id)))
            elif not told or self._told[rif_id] != rif.wanted:
                self._told[rif_id] = rif.wanted
                news.append(TellRm(Coming(rif_id, rif.wanted, rif.host)))
        self._changed.clear()
        return news

    def brings(self, rif: ManagedRif) -> bool:
        """Return whether this RIF is on its way, for the first time or again."""
        if rif.state is RifState.LOST:
            return not (rif.is_first_try or rif.once)
        return rif.state is RifState.STARTING or (rif.state is RifState.AWAY and not rif.resources)

    def check(self, rifs: Iterable[ManagedRif]) -> None:
        """Assert that the RM was told of just those RIFs that are on their way."""
        assert not self._changed, self._changed
        coming = {rif.rif_id: rif.wanted for rif in rifs if self.brings(rif)}
        assert self._told == coming, (self._told, coming)


class _Bootstrap(Struct, eq=False):
    """A bootstrap whose answer is not complete."""

    waiting: set[RifId]
    started: dict[str, RifId] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class _Teardown(Struct, eq=False):
    """A teardown whose answer is not complete."""

    rif_ids: tuple[RifId, ...]
    waiting: set[RifId]


class Questions:
    """The bootstraps and teardowns that people have asked for, until they are answered."""

    def __init__(self) -> None:
        self._bootstraps: dict[int, _Bootstrap] = {}
        self._teardowns: dict[int, _Teardown] = {}

    def begin_bootstrap(self, ask: int) -> _Bootstrap:
        """Return what is filled in, and then answered by :meth:`answer_bootstrap` or :meth:`conclude`."""
        self._bootstraps[ask] = _Bootstrap(set())
        return self._bootstraps[ask]

    def conclude(self, rif: ManagedRif, failure: str) -> list[Answer]:
        """Enter how a bootstrap of this RIF ended into its answer, and return that if it is complete."""
        ask, rif.ask = rif.ask, None
        if ask is None:
            return []
        bootstrap = self._bootstraps[ask]
        bootstrap.waiting.discard(rif.rif_id)
        if failure:
            bootstrap.failed[rif.host] = failure
        else:
            rif.proven = True
            bootstrap.started[rif.host] = rif.rif_id
        return self.answer_bootstrap(ask)

    def answer_bootstrap(self, ask: int) -> list[Answer]:
        """Return the answer if it is complete."""
        if self._bootstraps[ask].waiting:
            return []
        bootstrap = self._bootstraps.pop(ask)
        return [Answer(ask, Bootstrapped(bootstrap.started, bootstrap.failed))]

    def begin_teardown(self, ask: int, rif_ids: tuple[RifId, ...]) -> None:
        """These RIFs are to be taken down."""
        self._teardowns[ask] = _Teardown(rif_ids, set(rif_ids))

    def answer_teardowns(self, rif_id: RifId) -> list[Answer]:
        """Nothing is left of a RIF: return the answers that are complete."""
        complete = []
        for ask, teardown in list(self._teardowns.items()):
            teardown.waiting.discard(rif_id)
            if not teardown.waiting:
                del self._teardowns[ask]
                complete.append(Answer(ask, TornDown(teardown.rif_ids)))
        return complete

    def check(self, rifs: Mapping[RifId, ManagedRif]) -> None:
        """Assert that each question waits for RIFs that are there."""
        asked = {rif.rif_id: rif.ask for rif in rifs.values() if rif.ask is not None}
        waiting = {rif_id: ask for ask, bootstrap in self._bootstraps.items() for rif_id in bootstrap.waiting}
        assert asked == waiting, (asked, waiting)
        for teardown in self._teardowns.values():
            assert teardown.waiting, "a teardown with nothing to wait for is answered"
            assert all(rifs[rif_id].state is RifState.STOPPING for rif_id in teardown.waiting)
