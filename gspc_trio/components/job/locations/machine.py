"""Several resource managers as one (SCH-6, GSPC19 3.5): between a scheduler and its run-time systems.

The scheduler of a job speaks to one resource manager. Here its credit is divided among several, each of one
run-time system; a policy says how much each gets. Ids and grants get the name of where they come from. When
a run-time system has gone for good, its grants have lapsed, and what is bound to it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gspc_trio.components.job.locations.names import Location, location_of, number_of
from gspc_trio.components.job.locations.state import (
    LOOK_S,
    Away,
    Gone,
    LocationPolicy,
    LocationsAction,
    LocationsEvent,
    LocationState,
    Said,
    Tell,
    To,
    Wanted,
    first_class,
)
from gspc_trio.components.job.messages import LocationStatus
from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    HostEvacuated,
    HostRestricted,
    HostRests,
    OutsideEvent,
    Reclaim,
    ResourcesLost,
    ResourcesUp,
    Withheld,
)
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Lapsed, Recall, Refuse, Release
from gspc_trio.components.worker.messages import Begun, Cancel, Finished, Submit, TakeBack
from gspc_trio.core.demand import DemandWanted, GroupRefused, TaskDemand
from gspc_trio.core.ids import GrantId, JobId
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.core.task import Reason, Shape

_FOR_THE_SCHEDULER = (Recall, Begun, Withheld, Finished, HostEvacuated, HostRests, HostRestricted)
"""What is passed on as it is."""


class Locations(MachineBase[LocationsEvent, LocationsAction]):
    """Between the scheduler of a job and the resource managers of several run-time systems.

    Args:
        locations: all of them, with their numbers in order.
        policy: divides what is asked for.
    """

    noun = "the locations of a job"

    def __init__(self, locations: Sequence[Location], policy: LocationPolicy) -> None:
        super().__init__()
        self.job: JobId = locations[0].job
        self.places: Mapping[str, LocationState] = {at.name: LocationState(at) for at in locations}
        self._by_number = tuple(self.places.values())
        self._policy = policy
        self._wanted: dict[Shape, Wanted] = {}
        self._reclaiming: set[str] = set()
        self._look_s: float | None = None
        self._demand_wanted = False

    def deadline(self) -> float | None:
        """Return when to look again whether credit had better be elsewhere, None if there is no choice."""
        return self._look_s

    def check(self) -> None:
        """Assert that no more is asked for than the scheduler wants, and nothing of what has gone."""
        for shape, wanted in self._wanted.items():
            told = sum(place.asked[shape].credit for place in self._by_number if shape in place.asked)
            assert told <= wanted.credit, f"{told} grants are asked for, {wanted.credit} are wanted: {shape}"
        for place in self._by_number:
            told = sum(asked.credit for asked in place.asked.values())
            assert not place.gone or not (told or place.held), f"{place.at.name} has gone, and is asked"
            for grant_id, (_, names) in place.held.items():
                assert number_of(grant_id) == place.at.number, f"{grant_id} is not of {place.at.name}"
                assert all(map(place.at.has, names)), f"{names} are not of {place.at.name}"
            for name, number in place.held_of.items():
                of_it = [shape for shape, _ in place.held.values() if first_class(shape) == name]
                assert number == len(of_it), f"{number} grants of {name} are counted, {len(of_it)} are held"

    def explain(self, shape: Shape) -> str:
        """Return what is known of each location for tasks of a shape, for people."""
        told = []
        for place in self._by_number:
            name, asked = place.at.name, place.asked.get(shape)
            if place.gone:
                told.append(f"{name} has gone")
            elif place not in self._open_to(shape):
                told.append(f"not at {name}{f': {asked.refused}' if asked and asked.refused else ''}")
            else:
                load = place.load(shape, self.now)
                text = f"{load.slots} could run at {name}, {load.held} are granted"
                text += f", {asked.credit} asked for" if asked is not None else ""
                if load.asked_s:
                    text += f", waited {load.asked_s:.1f} s"
                if load.run_s is not None:
                    text += f", {load.transfer_s:.3g} s transfer, {load.run_s:.3g} s run"
                told.append(text + (", away" if place.away else ""))
        return "; ".join(told)

    def statuses(self, now: float) -> tuple[LocationStatus, ...]:
        """Return how each location is, and what the job has there."""
        return tuple(place.status(now) for place in self._by_number)

    # What the scheduler says

    @handles(Demand)
    def _demand(self, event: Demand) -> None:
        wanted = self._wanted.setdefault(event.shape, Wanted())
        wanted.credit, wanted.priority = event.credit, event.priority
        if not event.credit:
            self._divide(event.shape)
            self._forget(event.shape)
            return
        for place in self._by_number:
            if not place.gone and (asked := place.asked.get(event.shape)) is not None:
                asked.refused = ""  # it may have what is needed by now
        if self._open_to(event.shape):
            self._divide(event.shape)
        else:
            self._refuse(event.shape)

    @handles(Release)
    def _release(self, event: Release) -> None:
        place = self._by_number[number_of(event.grant_id)]
        if not event.resources or event.grant_id not in place.held:
            self._drop(place, event.grant_id)
        self._say(place, event)

    @handles(Interrupt)
    def _interrupt(self, event: Interrupt) -> None:
        for place in self._by_number:
            for asked in place.asked.values():
                asked.credit, asked.since_s = 0, None
            self._to(place, replace(event, job=place.at.job_there))
        self._wanted.clear()

    @handles(Submit, Hold)
    def _under_grant(self, event: Submit | Hold) -> None:
        self._say(self._by_number[number_of(event.grant_id)], event)

    @handles(Cancel, TakeBack)
    def _to_worker(self, event: Cancel | TakeBack) -> None:
        self._say(self.places[location_of(event.resource_id)], event)

    @handles(GivenUp)
    def _given_up(self, event: GivenUp) -> None:
        self._say(self.places[location_of(event.withheld.resource_ids[0])], event)

    @handles(Claims)
    def _claims(self, event: Claims) -> None:
        """All that is held: for those that are back. Others learn what the scheduler has given up."""
        claimed = {grant.grant_id for grant in event.grants}
        for place in self._by_number:
            lost = [grant_id for grant_id in place.held if grant_id not in claimed]
            for grant_id in lost:
                self._drop(place, grant_id)
                if place.at.name not in self._reclaiming:
                    self._say(place, Release(self.job, grant_id))
            if place.at.name in self._reclaiming:
                own = tuple(
                    replace(grant, shape=place.asked_of(grant.shape).there)
                    for grant in event.grants
                    if number_of(grant.grant_id) == place.at.number
                )
                self._say(place, Claims(event.job, own))
        self._reclaiming.clear()

    @handles(TaskDemand)
    def _task_demand(self, event: TaskDemand) -> None:
        for place in self._by_number:
            if place.wants_demand and not place.gone:
                at = place.at
                running = tuple(
                    replace(one, rif_id=at.id_there(one.rif_id))
                    for one in event.running
                    if at.has(one.rif_id)
                )
                ended = tuple(
                    replace(one, rif_id=at.id_there(one.rif_id)) for one in event.ended if at.has(one.rif_id)
                )
                self._to(place, TaskDemand(at.job_there, event.groups, running, ended))

    # What the locations say

    @handles(Said)
    def _said(self, event: Said) -> None:
        place = self.places[event.location]
        if place.gone:
            return  # it was on its way
        said = event.event
        if type(said) is Grant:
            self._granted(place, said)
        elif type(said) is Refuse:
            self._refused(place, said)
        elif type(said) is Reclaim:
            self._is_back(place)
        elif type(said) is DemandWanted:
            place.wants_demand = said.wanted
            self._tell_wanted()
        elif type(said) is GroupRefused:
            if all(other is place or other.gone for other in self._by_number):
                self._tell(said)
        elif type(said) is Withheld and not said.resource_ids:
            self._to(place, GivenUp(said))
        else:
            inward = place.at.inward(said)
            self._note(place, inward)
            self._tell(inward)

    def _note(self, place: LocationState, event: OutsideEvent) -> None:
        """Keep what an event says that the scheduler is told of, too."""
        if type(event) is Finished:
            shape = place.by_resource.get(event.resource_id)
            if shape is not None:
                learn = place.asked_of(shape).measured.learn
                for outcome in event.outcomes:
                    if outcome.reason is Reason.FINISHED:
                        learn(outcome)
        elif type(event) is ResourcesUp:
            changed = False
            for resource in event.resources:
                if resource.resource_id not in place.classes:
                    name = place.classes[resource.resource_id] = resource.resource_class
                    place.sizes[name] = place.sizes.get(name, 0) + 1
                    changed = True
            if changed:
                self._divide_all(forgive=place)
        elif type(event) is ResourcesLost:
            for resource_id in event.resource_ids:
                if (name := place.classes.pop(resource_id, "")) and place.sizes.get(name):
                    place.sizes[name] -= 1
            self._divide_all()
        elif type(event) is Lapsed:
            for grant_id in event.grant_ids:
                self._drop(place, grant_id)
        elif type(event) not in _FOR_THE_SCHEDULER:
            raise IllegalEvent(f"{place.at.name} cannot say {type(event).__name__}")

    def _granted(self, place: LocationState, grant: Grant) -> None:
        place.seen = max(place.seen, grant.grant_id)
        shape = place.here_of.get(grant.shape)
        if shape is None:  # it has crossed the end of the last demand
            self._to(place, Release(place.at.job_there, grant.grant_id))
            return
        asked, wanted = place.asked[shape], self._wanted.setdefault(shape, Wanted())
        asked.credit = max(0, asked.credit - 1)
        asked.waited_s, asked.since_s = 0.0, self.now if asked.credit else None
        here = place.at.inward(replace(grant, shape=shape))
        assert isinstance(here, Grant)
        if here.grant_id in place.held:
            raise IllegalEvent(f"grant {grant.grant_id} came twice from {place.at.name}")
        place.held[here.grant_id] = shape, here.resources
        place.by_resource[here.resources[0]] = shape
        name = first_class(shape)
        place.held_of[name] = place.held_of.get(name, 0) + 1
        wanted.credit = max(0, wanted.credit - 1)
        if wanted.credit < sum(other.asked_of(shape).credit for other in self._open_to(shape)):
            self._divide(shape)  # a crossing grant: others are asked for less
        self._tell(here)

    def _refused(self, place: LocationState, refuse: Refuse) -> None:
        shape = place.here_of.get(refuse.shape)
        if shape is None:
            return
        asked = place.asked[shape]
        asked.refused, asked.credit, asked.since_s = refuse.reason, 0, None
        self._to(place, Demand(place.at.job_there, asked.there, 0, place.seen))
        if self._open_to(shape):
            self._divide(shape)
        else:
            self._refuse(shape, refuse.kind)

    def _is_back(self, place: LocationState) -> None:
        """It may be another one, which knows nothing of the job: the scheduler says what it holds."""
        place.away = False
        self._reclaiming.add(place.at.name)
        for asked in place.asked.values():
            asked.credit, asked.since_s, asked.waited_s, asked.refused = 0, None, 0.0, ""
        self._tell(Reclaim())

    @handles(Away)
    def _away(self, event: Away) -> None:
        """Ask others; what runs there may go on, and its hosts report it."""
        place = self.places[event.location]
        place.away = True
        for asked in place.asked.values():
            asked.credit, asked.since_s = 0, None
        self._divide_all()

    @handles(Gone)
    def _gone(self, event: Gone) -> None:
        place = self.places[event.location]
        if place.gone:
            return
        place.gone, place.away = event.reason or "it has gone", False
        ids, grants = tuple(place.classes), tuple(place.held)
        place.sizes.clear()
        place.classes.clear()
        for asked in place.asked.values():
            asked.credit, asked.since_s = 0, None
        for grant_id in grants:
            self._drop(place, grant_id)
        if ids:
            self._tell(ResourcesLost(ids, f"{event.location}: {place.gone}"))
        if grants:
            self._tell(Lapsed(self.job, grants, f"{event.location}: {place.gone}"))
        if place.wants_demand:
            place.wants_demand = False
            self._tell_wanted()
        self._divide_all()

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        if self._look_s is not None and self.now >= self._look_s:
            self._look_s = None
            for shape in list(self._wanted):
                self._divide(shape)
                self._leave(shape)

    # Choices

    def _open_to(self, shape: Shape) -> list[LocationState]:
        """Return where tasks of a shape may run, as far as is known."""
        found = [place for place in self._by_number if not place.gone]
        if shape.at:
            found = [place for place in found if place.at.name == shape.at]
        for one in shape.requirements:
            if one.hard:
                found = [place for place in found if any(map(place.at.has, one.preferences))]
        return [place for place in found if shape not in place.asked or not place.asked[shape].refused]

    def _divide_all(self, forgive: LocationState | None = None) -> None:
        """Divide all credit anew; refuse what nobody is left for.

        Args:
            forgive: what this place has kept waiting may come now.
        """
        for shape in list(self._wanted):
            if forgive is not None and shape in forgive.asked:
                asked = forgive.asked[shape]
                asked.waited_s, asked.refused = 0.0, ""
                asked.since_s = None if asked.since_s is None else self.now
            if self._wanted[shape].credit:
                if self._open_to(shape):
                    self._divide(shape)
                else:
                    self._refuse(shape)

    def _divide(self, shape: Shape) -> None:
        """Ask each location for its part of what is wanted of a shape, first those that get less."""
        wanted, places = self._wanted[shape], [place for place in self._open_to(shape) if not place.away]
        loads = [place.load(shape, self.now) for place in places]
        parts = self._policy.divide(wanted.credit, loads, shape.estimate_s) if places else []
        changes = sorted(
            (part - place.asked_of(shape).credit, number)
            for number, (place, part) in enumerate(zip(places, parts, strict=True))
        )
        for _, number in changes:
            self._ask(places[number], shape, parts[number], wanted.priority)
        for place in self._by_number:
            if place not in places and place.asked.get(shape) and place.asked[shape].credit:
                self._ask(place, shape, 0, 0)
        if wanted.credit and len(places) > 1 and self._look_s is None:
            self._look_s = self.now + LOOK_S

    def _ask(self, place: LocationState, shape: Shape, credit: int, priority: int) -> None:
        asked = place.asked_of(shape)
        if asked.credit == credit and (asked.priority == priority or not credit):
            return
        if not credit:
            asked.waited_s = asked.wait_s(self.now)
            asked.until_s = self.now + max(2 * asked.waited_s, LOOK_S)
            asked.since_s = None
        elif asked.since_s is None:
            asked.since_s = self.now
        asked.credit, asked.priority = credit, priority
        self._to(place, Demand(place.at.job_there, asked.there, credit, place.seen, priority))

    def _leave(self, shape: Shape) -> None:
        """Give back what is held where tasks would end later than elsewhere, though these wait there."""
        waiting, places = self._wanted[shape].credit, [p for p in self._open_to(shape) if not p.away]
        if not waiting or len(places) < 2:
            return
        loads = [place.load(shape, self.now) for place in places]
        for number, place in enumerate(places):
            if self._policy.leaves(number, waiting, loads, shape.estimate_s):
                held = tuple(one for one, (of, _) in place.held.items() if of == shape)
                if held:
                    self._tell(Recall(self.job, held))

    def _refuse(self, shape: Shape, kind: str = "impossible") -> None:
        """Nobody is left for a shape: what waits for it has failed."""
        self._wanted.pop(shape, None)
        self._tell(Refuse(self.job, shape, self.why_refused(shape), kind))

    def why_refused(self, shape: Shape) -> str:
        """Return why no location can run tasks of a shape."""
        names = ", ".join(self.places)
        if shape.at and shape.at not in self.places:
            return f"there is no run-time system {shape.at!r}; the job has {names}"
        if shape.at and (gone := self.places[shape.at].gone):
            return f"the task is to run at {shape.at}, which has gone: {gone}"
        told = [
            f"{place.at.name}: {why}"
            for place in self._by_number
            if (not shape.at or shape.at == place.at.name)
            and (why := place.gone or (place.asked[shape].refused if shape in place.asked else ""))
        ]
        return "; ".join(told) or f"none of {names} has what it must have: {shape}"

    # Means

    def _drop(self, place: LocationState, grant_id: GrantId) -> None:
        held = place.held.pop(grant_id, None)
        if held is not None:
            shape, names = held
            place.held_of[first_class(shape)] -= 1
            if not any(names[0] == other[0] for _, other in place.held.values()):
                place.by_resource.pop(names[0], None)

    def _forget(self, shape: Shape) -> None:
        """Nothing more is wanted of a shape: forget it where nothing is held."""
        del self._wanted[shape]
        for place in self._by_number:
            asked = place.asked.get(shape)
            if asked is not None and not any(of == shape for of, _ in place.held.values()):
                del place.asked[shape], place.here_of[asked.there]

    def _tell_wanted(self) -> None:
        wanted = any(place.wants_demand for place in self._by_number)
        if wanted or self._demand_wanted:
            self._tell(DemandWanted(wanted))
        self._demand_wanted = wanted

    def _tell(self, event: OutsideEvent) -> None:
        self.actions.append(Tell(event))

    def _say(self, place: LocationState, action: object) -> None:
        self._to(place, place.at.outward(action))

    def _to(self, place: LocationState, message: object) -> None:
        if not place.gone:
            self.actions.append(To(place.at.name, message))
