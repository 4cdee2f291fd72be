"""Adding and removing resources (RTS-2): one request at a time for each RIF, in the order asked for."""

from __future__ import annotations

from gspc_trio.components.rif.messages import AddResources, RemoveResources
from gspc_trio.components.rm.events import REMOVE_POLICIES, Added, Removed
from gspc_trio.components.rts.actions import Answer, AskRif, QuestionRefused, TellRm
from gspc_trio.components.rts.events import (
    AddAsked,
    RemoveAsked,
    ResourcesLeft,
    RifAnswered,
    RifRefused,
    RmAnswered,
)
from gspc_trio.components.rts.lifecycle import UNCONFIRMED, LifeCycle
from gspc_trio.components.rts.state import (
    Add,
    Clear,
    ManagedRif,
    Removal,
    Remove,
    RifState,
    checked_dag,
    with_descendants,
)
from gspc_trio.core.ids import Counter, ResourceId
from gspc_trio.core.resources import BadResources


class Requests:
    """What RIFs are asked to do with their resources.

    Args:
        lives: the RIFs.
    """

    def __init__(self, lives: LifeCycle) -> None:
        self._lives = lives
        self._calls = Counter()

    def asked(self, event: AddAsked | RemoveAsked) -> None:
        """Take what a user asks for."""
        rif = self._lives.rifs.get(event.rif_id)
        reason = ""
        if rif is None:
            there = ", ".join(self._lives.rifs) or "none"
            reason = f"there is no RIF {event.rif_id}; there are: {there}"
        elif rif.state is not RifState.UP:
            reason = f"{rif.rif_id} is {rif.state}" + (f": {rif.reason}" if rif.reason else "")
        elif len(rif.waiting) >= self._lives.limits.requests_max:
            reason = f"{rif.rif_id} has {len(rif.waiting)} requests waiting, more than that are not taken"
        elif isinstance(event, RemoveAsked) and event.policy not in REMOVE_POLICIES:
            reason = f"there is no policy {event.policy!r}; there are: {', '.join(REMOVE_POLICIES)}"
        elif not (event.resources if isinstance(event, AddAsked) else event.resource_ids):
            reason = "no resource was named"
        if rif is None or reason:
            self._lives.actions.append(QuestionRefused(event.ask, reason))
        elif isinstance(event, AddAsked):
            rif.waiting.append(Add(event.resources, event.ask))
        else:
            rif.waiting.append(Remove(event.resource_ids, event.policy, event.ask))
        if rif is not None:
            self.pump(rif)

    def pump(self, rif: ManagedRif) -> None:
        """Begin what waits, until the RIF has something to do, or the RM may refuse what it was told."""
        while rif.waiting and rif.request is None and rif.link is not None and not rif.is_undecided:
            request = rif.waiting.popleft()
            try:
                if isinstance(request, Add):
                    request = Add(checked_dag(rif, request.resources), request.ask)
                    self._ask(rif, request, AddResources(request.resources))
                elif isinstance(request, Clear):
                    self._ask(rif, request, RemoveResources(request.resource_ids))
                else:
                    self._begin_removal(rif, request)
            except BadResources as error:
                assert request.ask is not None, "what the RTS itself adds was checked before"
                self._lives.actions.append(QuestionRefused(request.ask, str(error)))

    def _ask(self, rif: ManagedRif, request: Add | Clear, message: AddResources | RemoveResources) -> None:
        assert rif.link is not None
        rif.request, rif.call = request, self._calls.next()
        self._lives.actions.append(AskRif(rif.link, rif.call, message))

    def _begin_removal(self, rif: ManagedRif, request: Remove) -> None:
        ids = with_descendants(rif, request.resource_ids)
        rif.leaving.update(ids)
        rif.removals.append(Removal(request.ask, ids, set(ids), request.policy == "refuse"))
        self._lives.actions.append(TellRm(Removed(ids, request.policy)))

    # The RIF's word -----------------------------------------------------------------------------------------

    def answered(self, event: RifAnswered) -> None:
        """A RIF has done what it was asked to do."""
        rif = self._rif_of(event)
        if rif is None:
            return
        request = rif.request
        if isinstance(request, Add):
            rif.resources.update((resource.resource_id, resource) for resource in request.resources)
            if rif.state is RifState.UP:  # answered when the RM has taken them
                rif.report = event.report
                self._lives.announce(rif)
                self._lives.actions.append(TellRm(Added(request.resources, rif.host)))
                return
            self._lives.open(rif)
        elif isinstance(request, Clear):
            for resource_id in request.resource_ids:
                del rif.resources[resource_id]
                rif.leaving.discard(resource_id)
                rif.left.discard(resource_id)
            if request.ask is not None:
                self._lives.actions.append(Answer(request.ask, event.report))
        rif.request = None
        self.pump(rif)

    def refused(self, event: RifRefused) -> None:
        """A RIF could not do what it was asked to do."""
        rif = self._rif_of(event)
        if rif is None:
            return
        request = rif.request
        if isinstance(request, Add) and request.ask is not None:
            rif.request = None
            self._lives.actions.append(QuestionRefused(request.ask, event.reason))
            self.pump(rif)
        else:  # nobody knows what it has now: only a new one is sure to be right
            doing = "add its first" if isinstance(request, Add) else "remove"
            self._lives.lose(rif, f"it could not {doing} resources: {event.reason}")

    def _rif_of(self, event: RifAnswered | RifRefused) -> ManagedRif | None:
        """Return the RIF that waits for this answer, None if it was lost meanwhile."""
        rif = self._lives.by_link.get(event.link)
        if rif is None or rif.request is None or rif.report is not None or rif.call != event.call:
            return None
        return rif

    # The RM's word ------------------------------------------------------------------------------------------

    def left(self, event: ResourcesLeft) -> None:
        """The RM has resources no more: their RIF clears them away, or is ended if it owed an answer."""
        by_rif: dict[str, list[ResourceId]] = {}
        for resource_id in event.resource_ids:
            by_rif.setdefault(resource_id.partition(".")[0], []).append(resource_id)
        for rif_id, ids in by_rif.items():
            rif = self._lives.rifs.get(rif_id)
            if rif is None or rif.state not in (RifState.UP, RifState.AWAY):
                continue
            if any(name in rif.resources and name not in rif.leaving for name in ids):
                rif.left.update(ids)  # the RM has the rest only
                self._lives.lose(rif, UNCONFIRMED)
                continue
            self._left_of(rif, set(ids))

    def _left_of(self, rif: ManagedRif, ids: set[ResourceId]) -> None:
        rif.left.update(ids & rif.leaving)
        rif.settle(ids)
        for removal in list(rif.removals):
            removal.outstanding -= ids
            if not removal.outstanding:
                rif.removals.remove(removal)
                rif.waiting.append(Clear(removal.resource_ids, removal.ask))
        self._lives.announce(rif)
        self.pump(rif)

    def rm_answered(self, event: RmAnswered) -> None:
        """The RM has taken what it was told, or would not: the question is answered, the RIF set right."""
        told = event.event
        ids = (
            told.resource_ids
            if isinstance(told, Removed)
            else tuple(one.resource_id for one in told.resources)
        )
        rif = self._lives.rifs.get(ids[0].partition(".")[0])
        if rif is None or rif.state not in (RifState.UP, RifState.AWAY):
            return
        if isinstance(told, Removed):
            self._removal_answered(rif, ids, event.refusal)
        elif rif.state is RifState.AWAY:
            return
        elif rif.ask is not None:
            self._lives.taken(rif, event.refusal)
        else:
            self._added(rif, told, event.refusal)

    def _removal_answered(self, rif: ManagedRif, ids: tuple[ResourceId, ...], refusal: str) -> None:
        for removal in [removal for removal in rif.removals if removal.resource_ids == ids]:
            removal.undecided = False
            if refusal:
                rif.removals.remove(removal)
                rif.leaving.difference_update(ids)
                self._lives.actions.append(QuestionRefused(removal.ask, refusal))
        self.pump(rif)

    def _added(self, rif: ManagedRif, told: Added, refusal: str) -> None:
        request, report = rif.request, rif.report
        if not isinstance(request, Add) or report is None or request.resources != told.resources:
            return
        assert request.ask is not None, "the first resources of a RIF are not waited for here"
        rif.request = rif.report = None
        if refusal:
            ids = tuple(resource.resource_id for resource in told.resources)
            rif.leaving.update(ids)
            rif.left.update(ids)
            rif.waiting.appendleft(Clear(ids, None))
            self._lives.announce(rif)
            self._lives.actions.append(QuestionRefused(request.ask, refusal))
        else:
            self._lives.actions.append(Answer(request.ask, report))
        self.pump(rif)
