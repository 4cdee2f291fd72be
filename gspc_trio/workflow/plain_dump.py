"""The state of an engine as JSON, which people and programs read, and back (WE-2)."""

from __future__ import annotations

import base64
import math
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from gspc_trio.core.task import TaskState
from gspc_trio.workflow.activities import loaded_engine
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.state import FORMAT
from gspc_trio.workflow.tokens import Plain, Value

PLAIN_FORMAT = "gspc-trio job dump 1"
"""Version of the dumps that are written and read."""

UNSAID = "$unsaid"
"""Key of what stands for a value that JSON cannot hold."""

NOT_SAID_SHOWN_MAX = 5
"""So many of such values are named in an error."""

NUMBER_MAX = 2**53 - 1
"""The largest number that every reader of JSON gets exactly; ids are not above."""

UNFINISHED = (TaskState.READY, TaskState.SUBMITTED, TaskState.FAILED, TaskState.CANCELLED)
"""States of the tasks in a dump."""

Shape = TypeVar("Shape")
Number = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Tokens = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]


class SaidError(Struct, frozen=True):
    """How the last attempt of a task ended."""

    kind: str
    message: str
    traceback: str


class SaidTask(Struct, frozen=True):
    """A task of a plain dump, whose inputs are not yet values."""

    id: Number
    transition: str
    state: str
    inputs: list[Plain]
    error: SaidError | None = None


class SaidPlace(Struct, frozen=True):
    """A place of a plain dump, whose tokens are not yet values."""

    tokens: list[Plain]
    arrived: list[Number] = []


class SaidPorts(Struct, frozen=True):
    """The ports of a plain dump: those that are open, and what was taken off."""

    open: list[str] = []
    received: dict[str, Tokens] = {}
    streams: dict[str, tuple[bool, Tokens, Tokens]] = {}


class SaidDump(Struct, frozen=True):
    """A plain dump, whose tasks and places are not yet looked at."""

    last_task_id: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
    tasks: list[Plain]
    places: dict[str, Plain]
    transitions: list[str]
    ready: list[str]
    net: str = ""
    not_said: list[str] = []
    ports: SaidPorts = SaidPorts()


IN_WORDS = {
    "array": "a list",
    "object": "an object",
    "str": "a text",
    "int": "a whole number",
    "float": "a number with a fraction",
    "bool": "true or false",
    "null": "null",
}
"""How errors name the kinds of values."""

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 200


def plain_dump(name: str, state: Mapping[str, Plain], loads: Callable[[bytes], Value]) -> dict[str, Plain]:
    """Return what ``WorkflowEngine.dump`` has returned as plain data for JSON.

    Args:
        name: of the net.
        state: the dump.
        loads: bytes -> value; what it raises is told in place of the value.
    """
    not_said: list[str] = []

    def said(data: bytes, where: str) -> Plain:
        unsaid: list[str] = []
        try:
            value = _said(loads(data), unsaid)
        except RecursionError:
            value = _unsaid("value", "nested too deeply, or contains itself", unsaid)
        except Exception as error:
            value = _unsaid("value", f"{error}", unsaid)
        not_said.extend(f"{where}: {what}" for what in unsaid)
        return value

    def taken(item: Plain, where: str) -> Plain:
        if isinstance(item, bytes):
            return said(item, where)
        return {"$batch": [said(data, where) for data in item]}

    places = {}
    for place, (arrived, tokens) in state["tokens"]["places"].items():
        values = [said(data, f"place {place!r}, token {n}") for n, data in enumerate(tokens, 1)]
        places[place] = {"tokens": values} | ({"arrived": arrived} if arrived else {})
    tasks = []
    again = [[task_id, name, TaskState.SUBMITTED, taken, None] for task_id, name, taken, _ in state["held"]]
    for task_id, transition, task_state, binding, error in sorted([*state["activities"], *again]):
        where = f"task {task_id} ({transition}), input"
        inputs = [taken(item, f"{where} {n}") for n, item in enumerate(binding, 1)]
        task = {"id": task_id, "transition": transition, "state": task_state, "inputs": inputs}
        if error is not None:
            task["error"] = dict(zip(("kind", "message", "traceback"), error, strict=False))
        tasks.append(task)
    return {
        "format": PLAIN_FORMAT,
        "net": name,
        "last_task_id": state["last_task_id"],
        "not_said": not_said,
        "tasks": tasks,
        "places": places,
        "transitions": state["net"]["transitions"],
        "ready": state["tokens"]["ready"],
    } | ({"ports": state["ports"]} if state["ports"] else {})


def _said(value: Value, unsaid: list[str]) -> Plain:
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is list:
        return [_said(item, unsaid) for item in value]
    if kind is tuple:
        return {"$tuple": [_said(item, unsaid) for item in value]}
    if kind is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _said(item, unsaid) for key, item in value.items()}
        return {"$dict": [[_said(key, unsaid), _said(item, unsaid)] for key, item in value.items()]}
    return _unsaid(f"{kind.__module__}.{kind.__qualname__}", _text(value), unsaid)


def _unsaid(kind: str, text: str, unsaid: list[str]) -> Plain:
    unsaid.append(kind if kind != "value" else text)
    return {UNSAID: kind, "text": text}


def _text(value: Value) -> str:
    """Return a value as people read it; whatever its own code does wrong is no trouble of ours."""
    try:
        return _brief.repr(value)
    except Exception as error:
        return f"<its text cannot be had: {type(error).__name__}>"


def engine_from_dump(
    net: Net,
    dump: Mapping[str, Plain],
    *,
    dumps: Callable[[object], bytes],
    loads: Callable[[bytes], object],
    join: Callable[[Sequence[bytes]], bytes] | None = None,
) -> WorkflowEngine:
    """Return an engine that goes on where a plain dump was made; tasks that had not finished are ready again.

    Args:
        net: the workflow, of the same places and transitions.
        dump: what :func:`plain_dump` has returned, as JSON brings it back.
        dumps, loads, join: see :class:`WorkflowEngine`.

    Raises:
        WorkflowError: it is no such dump, or of another net, or has values that JSON could not hold. The
            message names the place or the task, and says what is wanted.
    """
    if not isinstance(dump, Mapping) or dump.get("format") != PLAIN_FORMAT:
        raise WorkflowError(f"this is no dump of a job (its format is not {PLAIN_FORMAT!r})")
    said = _shaped(dump, SaidDump, "")
    if missing := said.not_said:
        named = "; ".join(missing[:NOT_SAID_SHOWN_MAX])
        more = len(missing) - NOT_SAID_SHOWN_MAX
        also = f"; and {more} more" if more > 0 else ""
        raise WorkflowError(f"the dump cannot start a job, for JSON cannot hold what it had: {named}{also}")
    engine = loaded_engine(net, _state(net, said, dumps), dumps=dumps, loads=loads, join=join)
    engine.ports.free_all()
    for transition in engine.running.transitions.values():
        transition.mark()  # a dump may have been edited: what cannot fire costs one look
    for task_id, activity in engine.activities.items():
        if activity.state in (TaskState.FAILED, TaskState.CANCELLED):
            engine.restore(task_id)
    return engine


def _shaped(said: Plain, shape: type[Shape], where: str) -> Shape:
    """Return a part of a dump as what it must be.

    Raises:
        WorkflowError: it is something else; the message says where, and what is wanted.
    """
    try:
        return convert(said, shape)
    except ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        what = re.sub("`([^`]*)`", _in_words, what)
        at = ", ".join(filter(None, (where, path.rstrip("`"))))
        raise WorkflowError(f"the dump cannot start a job: {f'{at}: ' if at else ''}{what}") from error


def _in_words(kinds: re.Match[str]) -> str:
    """Return what an error calls ``array`` or ``object | null`` in words; the name of a field stays."""
    return " or ".join(IN_WORDS.get(kind, kinds[0]) for kind in kinds[1].split(" | "))


def _state(net: Net, dump: SaidDump, dumps: Callable[[object], bytes]) -> dict[str, Plain]:
    """Return a plain dump as ``WorkflowEngine.load`` wants it."""

    def data_of(said: Plain, where: str) -> bytes:
        try:
            return dumps(_meant(said))
        except WorkflowError as error:
            raise WorkflowError(f"the dump cannot start a job: {where}: {error}") from error
        except (TypeError, ValueError, RecursionError) as error:
            raise WorkflowError(f"the dump cannot start a job: {where} is no value: {error}") from error

    return {
        "format": FORMAT,
        "net": {
            "places": _in_order(dump.places, net.places),
            "transitions": _in_order(dump.transitions, net.transitions),
        },
        "tokens": {"places": _places(dump.places, data_of), "ready": dump.ready},
        "activities": [_activity(n, said, data_of) for n, said in enumerate(dump.tasks)],
        "last_task_id": dump.last_task_id,
        "ports": to_builtins(dump.ports),
    }


def _places(said: Mapping[str, Plain], data_of: Callable[[Plain, str], bytes]) -> dict[str, list[Plain]]:
    """Return the tokens by place, and the numbers with which they came; what was added comes last."""
    places = {name: _shaped(place, SaidPlace, f"place {name!r}") for name, place in said.items()}
    numbers: set[int] = set()
    for name, place in places.items():
        if len(numbers) + len(place.arrived) > len(numbers := numbers.union(place.arrived)):
            raise WorkflowError(
                f"the dump cannot start a job: place {name!r}, arrived: a number is there twice"
            )
    last = max(numbers, default=0)
    rows: dict[str, list[Plain]] = {}
    for name, place in places.items():
        arrived = place.arrived[: len(place.tokens)]
        newer = len(place.tokens) - len(arrived)
        arrived += range(last + 1, last + newer + 1)
        last += newer
        values = [data_of(token, f"place {name!r}, token {n}") for n, token in enumerate(place.tokens, 1)]
        rows[name] = [arrived, values]
    return rows


def _activity(index: int, said: Plain, data_of: Callable[[Plain, str], bytes]) -> list[Plain]:
    """Return a task under way."""
    task = _shaped(said, SaidTask, f"tasks[{index}]")
    where = f"task {task.id} ({task.transition})"
    if task.state not in UNFINISHED:
        raise WorkflowError(
            f"the dump cannot start a job: {where}: its state is {task.state!r}; it must be one of "
            f"{', '.join(UNFINISHED)}"
        )
    taken: list[Plain] = []
    for number, item in enumerate(task.inputs, 1):
        at = f"{where}, input {number}"
        if isinstance(item, dict) and "$batch" in item:
            taken.append(
                [data_of(part, at) for part in _shaped(item["$batch"], list[Plain], f"{at}, $batch")]
            )
        else:
            taken.append(data_of(item, at))
    error = task.error
    story = None if error is None else [error.kind, error.message, error.traceback, b""]
    return [task.id, task.transition, task.state, taken, story]


def _in_order(names: Sequence[str] | Mapping[str, Plain], order: Mapping[str, object]) -> list[str]:
    """Return names in the order of the net if they are its names: a tool may have sorted them."""
    return list(order) if set(names) == set(order) else list(names)


def _meant(said: Plain) -> Value:
    if isinstance(said, list):
        return [_meant(item) for item in said]
    if not isinstance(said, dict):
        return said
    if len(said) == 1:
        ((key, inner),) = said.items()
        if key == "$float":
            return float(inner)
        if key == "$bytes":
            return base64.b64decode(inner, validate=True)
        if key == "$tuple":
            return tuple(_meant(item) for item in inner)
        if key == "$dict":
            return {_meant(name): _meant(item) for name, item in inner}
    if UNSAID in said:
        raise WorkflowError(f"JSON could not hold {said.get('text')}")
    return {key: _meant(item) for key, item in said.items()}
