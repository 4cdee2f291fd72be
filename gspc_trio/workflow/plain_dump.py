"""The state of an engine as JSON, which people and programs read, and back (WE-2)."""

from __future__ import annotations

import base64
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence

from gspc_trio.core.task import TaskState
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
    for task_id, transition, task_state, binding, error in state["activities"]:
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
    }


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
        WorkflowError: it is no such dump, or of another net, or has values that JSON could not hold.
    """
    if not isinstance(dump, Mapping) or dump.get("format") != PLAIN_FORMAT:
        raise WorkflowError(f"this is no dump of a job (its format is not {PLAIN_FORMAT!r})")
    if missing := dump.get("not_said"):
        named = "; ".join(map(str, missing[:NOT_SAID_SHOWN_MAX]))
        more = len(missing) - NOT_SAID_SHOWN_MAX
        also = f"; and {more} more" if more > 0 else ""
        raise WorkflowError(f"the dump cannot start a job, for JSON cannot hold what it had: {named}{also}")
    try:
        state = _state(net, dump, dumps)
        engine = WorkflowEngine.load(net, state, dumps=dumps, loads=loads, join=join)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, WorkflowError):
            raise
        raise WorkflowError(f"the dump is damaged: {type(error).__name__}: {error}") from error
    for transition in engine.running.transitions.values():
        transition.mark()  # a dump may have been edited: what cannot fire costs one look
    for task_id, activity in engine.activities.items():
        if activity.state in (TaskState.FAILED, TaskState.CANCELLED):
            engine.restore(task_id)
    return engine


def _state(net: Net, dump: Mapping[str, Plain], dumps: Callable[[object], bytes]) -> dict[str, Plain]:
    """Return a plain dump as ``WorkflowEngine.load`` wants it."""

    def data_of(said: Plain) -> bytes:
        return dumps(_meant(said))

    last = max((max(place.get("arrived", ()), default=0) for place in dump["places"].values()), default=0)
    places = {}
    for name, place in dump["places"].items():
        tokens, arrived = place["tokens"], list(place.get("arrived", ()))[: len(place["tokens"])]
        newer = len(tokens) - len(arrived)
        arrived += range(last + 1, last + newer + 1)
        last += newer
        places[name] = [arrived, [data_of(said) for said in tokens]]
    activities = []
    for task in dump["tasks"]:
        taken = [
            [data_of(part) for part in said["$batch"]]
            if isinstance(said, dict) and "$batch" in said
            else data_of(said)
            for said in task["inputs"]
        ]
        error = task.get("error")
        story = None if error is None else [error["kind"], error["message"], error["traceback"], b""]
        activities.append([task["id"], task["transition"], task["state"], taken, story])
    return {
        "format": FORMAT,
        "net": {
            "places": _in_order(dump["places"], net.places),
            "transitions": _in_order(dump["transitions"], net.transitions),
        },
        "tokens": {"places": places, "ready": dump["ready"]},
        "activities": activities,
        "last_task_id": dump["last_task_id"],
    }


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
        raise WorkflowError(f"the dump cannot start a job: JSON could not hold {said.get('text')}")
    return {key: _meant(item) for key, item in said.items()}
