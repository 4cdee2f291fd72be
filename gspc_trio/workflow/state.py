"""The state of an engine as plain data, and back (WE-1 dump, WE-2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import TaskError, TaskState
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.in_flight import Encoded
from gspc_trio.workflow.marking import AnyPlace, BagPlace, StockedPlace, StreamPort, WatchedPlace
from gspc_trio.workflow.runtime import RunningNet, RunningTransition
from gspc_trio.workflow.search import Binding
from gspc_trio.workflow.tokens import Plain, Token, TokenCodec

FORMAT = 1
"""Version of the dumps that are written and read."""

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.READY: frozenset({TaskState.SUBMITTED, TaskState.CANCELLED}),
    TaskState.SUBMITTED: frozenset(
        {TaskState.READY, TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED}
    ),
    TaskState.FAILED: frozenset({TaskState.READY}),
    TaskState.CANCELLED: frozenset({TaskState.READY}),
    TaskState.FINISHED: frozenset(),
}
"""Where a task of a net may go from where it is; SUBMITTED are those extracted, RUNNING is none."""


class Activity:
    """A task under way: the transition that fired, the tokens it took, and how far it is."""

    __slots__ = ("binding", "error", "state", "transition")

    def __init__(
        self,
        transition: RunningTransition,
        binding: Binding,
        state: TaskState = TaskState.READY,
        error: TaskError | None = None,
    ) -> None:
        self.transition: RunningTransition = transition
        self.binding: Binding = binding
        self.state: TaskState = state
        self.error: TaskError | None = error


def dump_net(running: RunningNet, codec: TokenCodec) -> dict[str, Plain]:
    """Return tokens and ready queues as plain data.

    Tokens on watched places are numbered from 1 in the order in which they came: how many there were before
    is not part of the state, so a net that was loaded and one that was not have the same dump.
    """
    watched = [place for place in running.places.values() if isinstance(place, WatchedPlace)]
    serials = sorted(serial for place in watched for serial in place.tokens)
    numbers = {serial: number for number, serial in enumerate(serials, 1)}
    places = {}
    for name, place in running.places.items():
        tokens: Iterable[Token] = place.bag if isinstance(place, BagPlace) else place
        came = [numbers[token.serial] for token in tokens] if isinstance(place, WatchedPlace) else []
        places[name] = [came, [codec.encode(token) for token in tokens]]
    ready = [transition.description.name for queue in running.queues for transition in queue]
    return {"places": places, "ready": ready}


def load_net(running: RunningNet, state: Mapping[str, Plain]) -> None:
    """Put tokens and ready queues back into a net that has none yet."""
    watched: list[tuple[int, AnyPlace, Token]] = []
    for name, (serials, tokens) in state["places"].items():
        place = running.places[name]
        if isinstance(place, WatchedPlace):
            watched += [
                (serial, place, Token(data=data)) for serial, data in zip(serials, tokens, strict=True)
            ]
        elif isinstance(place, StockedPlace):
            place.fill(tokens, encoded=True)
        elif isinstance(place, StreamPort):
            place.tokens.extend(Token(data=data) for data in tokens)  # the room for them is used up
        else:
            for data in tokens:
                place.put(Token(data=data))
    for serial, place, token in sorted(watched, key=lambda item: item[0]):
        running.clock.last = serial - 1  # so that it arrives with its number
        place.put(token)
    for name, (serials, _) in state["places"].items():
        bag = running.places[name]
        if isinstance(bag, BagPlace):
            bag.arrange(serials)
    for queue in running.queues:  # putting tokens has marked transitions, in another order than they were in
        for transition in queue:
            transition.is_ready = False
        queue.clear()
    for name in state["ready"]:
        running.transitions[name].mark()


def held_tokens(taken: Iterable[tuple[RunningTransition, Binding]]) -> dict[str, int]:
    """Return place -> number of its tokens that are taken."""
    held: dict[str, int] = {}
    for transition, binding in taken:
        for token, arc in zip(binding, transition.description.inputs, strict=True):
            if arc.consumed:
                held[arc.place] = held.get(arc.place, 0) + (len(token.value) if token.is_batch else 1)
    return held


def check_tasks(
    transition: RunningTransition, activities: Mapping[TaskId, Activity], again: Mapping[TaskId, None]
) -> None:
    """Assert that a transition knows of its tasks under way; ``again`` are to be handed out once more."""
    of_it = {one: a for one, a in activities.items() if a.transition is transition}
    if transition.order is not None:
        transition.order.check(of_it)
    if (flight := transition.flight) is not None:
        unended = {one for one, a in of_it.items() if a.state in (TaskState.READY, TaskState.SUBMITTED)}
        waiting = (again.keys() | flight.waiting) & unended
        assert flight.unended == len(unended), "tasks in flight are not counted"
        assert flight.out == len(unended) - len(waiting), "tasks handed out are not counted"
        assert not flight.waiting or flight.out >= flight.most or again, "a task waits in vain"


def dump_activities(activities: Mapping[TaskId, Activity], codec: TokenCodec) -> list[list[Plain]]:
    """Return the tasks under way as plain data."""
    return [
        [
            task_id,
            activity.transition.description.name,
            str(activity.state),
            [_dump_taken(token, codec) for token in activity.binding],
            _dump_error(activity.error),
        ]
        for task_id, activity in activities.items()
    ]


def load_activities(
    rows: list[list[Plain]], running: RunningNet, codec: TokenCodec
) -> dict[TaskId, Activity]:
    """Return the tasks under way; those that were extracted are ready again.

    Raises:
        WorkflowError: an id is there twice, or a task does not fit the net.
    """
    activities: dict[TaskId, Activity] = {}
    for task_id, name, state, taken, error in rows:
        if task_id in activities:
            raise WorkflowError(f"the dump has task {task_id} twice: give each an id of its own")
        _check_task(f"task {task_id} ({name})", name, taken, running)
        task_state = TaskState(state)
        if task_state is TaskState.SUBMITTED:
            task_state = TaskState.READY
        binding = [_load_taken(item, codec) for item in taken]
        activities[task_id] = Activity(running.transitions[name], binding, task_state, _load_error(error))
    return activities


def dump_aside(aside: Iterable[tuple[RunningTransition, Binding]], codec: TokenCodec) -> list[list[Plain]]:
    """Return firings that have failed as plain data."""
    return [
        [transition.description.name, [_dump_taken(token, codec) for token in binding]]
        for transition, binding in aside
    ]


def load_aside(
    rows: Iterable[list[Plain]], running: RunningNet, codec: TokenCodec
) -> list[tuple[RunningTransition, Binding]]:
    """Return firings that have failed."""
    return [(running.transitions[name], [_load_taken(item, codec) for item in taken]) for name, taken in rows]


def dump_held(running: RunningNet, codec: TokenCodec) -> list[list[Plain]]:
    """Return results that wait for those of earlier tasks as plain data."""
    return [
        [task_id, name, [_dump_taken(token, codec) for token in binding], values]
        for name, transition in running.transitions.items()
        if transition.order is not None
        for task_id, (binding, values) in transition.order.held.items()
    ]


def load_held(
    rows: Iterable[list[Plain]],
    running: RunningNet,
    codec: TokenCodec,
    activities: Mapping[TaskId, Activity],
) -> None:
    """Let results wait again for those of earlier tasks.

    Raises:
        WorkflowError: a task does not fit the net.
    """
    held: dict[str, dict[TaskId, tuple[Binding, Encoded]]] = {}
    for task_id, name, taken, values in rows:
        _check_task(f"task {task_id} ({name})", name, taken, running)
        binding = [_load_taken(item, codec) for item in taken]
        held.setdefault(name, {})[task_id] = (binding, tuple(map(tuple, values)))
    for name, transition in running.transitions.items():
        if transition.order is not None:
            of_it = (one for one, activity in activities.items() if activity.transition is transition)
            transition.order.load(of_it, held.get(name, {}))


def _check_task(where: str, name: str, taken: list[Plain], running: RunningNet) -> None:
    """See that a task of a dump has a transition of this net, and the inputs which that takes."""
    transition = running.transitions.get(name)
    if transition is None or transition.description.is_inline:
        what = "is inline, and has no tasks" if transition else "is not in this net"
        raise WorkflowError(f"the dump has {where}, but this transition {what}")
    arcs = transition.description.inputs
    if len(taken) != len(arcs):
        raise WorkflowError(f"{where} has {len(taken)} inputs in the dump; its transition takes {len(arcs)}")
    for number, (item, arc) in enumerate(zip(taken, arcs, strict=True), 1):
        if not arc.is_batch:
            continue  # one token, or a batch that a transition has made one
        count = 0 if isinstance(item, bytes) else len(item)
        if not arc.least <= count <= arc.most:
            there = f"a batch of {count}" if count else "one token"
            wanted = f"a batch of {arc.least} to {arc.most}"
            raise WorkflowError(f"{where}, input {number} is {there} in the dump; it must be {wanted}")


def _dump_taken(token: Token, codec: TokenCodec) -> Plain:
    if token.is_batch:
        return [codec.encode(part) for part in token.value.tokens]
    return codec.encode(token)


def _load_taken(item: Plain, codec: TokenCodec) -> Token:
    if isinstance(item, bytes):
        return Token(data=item)
    return codec.batch([Token(data=data) for data in item])


def _dump_error(error: TaskError | None) -> list[Plain] | None:
    return None if error is None else [error.kind, error.message, error.traceback, error.pickled]


def _load_error(error: list[Plain] | None) -> TaskError | None:
    return None if error is None else TaskError(*error)


def check_dump(state: Mapping[str, Plain], running: RunningNet) -> None:
    """See that a dump is one, and of this net.

    Raises:
        WorkflowError: not so.
    """
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise WorkflowError(f"this is no dump of a workflow engine (format {FORMAT})")
    for what, there in (("places", list(running.places)), ("transitions", list(running.transitions))):
        dumped = list(state["net"][what])
        if dumped != there:
            raise WorkflowError(
                f"the dump belongs to another net: its {what} are {', '.join(dumped)}; "
                f"those of this net are {', '.join(there)}"
            )
    if strange := [name for name in state["tokens"]["ready"] if name not in running.transitions]:
        raise WorkflowError(f"the dump has {strange[0]!r} under ready, which is no transition of this net")
    newest = max((row[0] for row in state["activities"]), default=0)
    if newest > state["last_task_id"]:
        raise WorkflowError(
            f"the dump has task {newest}, but its last_task_id is {state['last_task_id']}: "
            f"it must be {newest} or more"
        )
