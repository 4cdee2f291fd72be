"""Functions that a workflow file offers: served by the job, and called by ``gspc-jobserver call``."""

from __future__ import annotations

import json as json_texts
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gspc_trio.cli.common import CommandError, print_json, running_connection
from gspc_trio.components.job.messages import GetFunctions, OfferedFunction
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.workflow.definition import Offered, takes_job


def serve_functions(job: Job, functions: Mapping[str, Offered]) -> None:
    """Offer the functions of a workflow file to clients of its job."""
    for name, function in functions.items():
        job.serve(name, partial(function, job) if takes_job(function) else function)


async def call(
    job: str,
    function: str = "",
    arguments: Annotated[list[str] | None, Parameter(negative=(), allow_leading_hyphen=True)] = None,
    *,
    rts: Annotated[Path | None, Parameter(name=["--rts", "--connection-file"])] = None,
    json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Call a function that a running job offers, and print what it returns.

    Parameters
    ----------
    job
        Id of the job, as gspc-jobserver list shows it.
    function
        Name of the function; without it, the functions that the job offers are listed.
    arguments
        Arguments by position, and NAME=VALUE by name. What is JSON is taken as that, the rest as text.
    rts
        Connection file of the run-time system; by default that of the current user.
    json
        Print JSON on standard output, not text.
    """
    positional, named = parse_arguments(arguments or [])
    async with join_rts(running_connection(rts)) as system:
        if not function:
            await _list_functions(system, job, json=json)
            return
        try:
            value = await system.call(job, function, *positional, **named)
        except (RemoteError, LookupError):
            raise
        except Exception as error:  # opening it runs code of whoever made its class
            raise CommandError(
                f"what {function} returned cannot be opened here: {type(error).__name__}: {error}; "
                "have it return numbers, texts, lists and dicts"
            ) from error
    if json or not isinstance(value, str):
        print_json(value)
    else:
        print(value)


def parse_arguments(texts: Sequence[str]) -> tuple[list[object], dict[str, object]]:
    """Return the arguments of a call by position and by name: JSON where a text is that, else the text.

    >>> parse_arguments(["1", "two", "three=[3]"])
    ([1, 'two'], {'three': [3]})
    """
    positional: list[object] = []
    named: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            named[name] = _parse(value)
        else:
            positional.append(_parse(text))
    return positional, named


def _parse(text: str) -> object:
    try:
        value: object = json_texts.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


async def _list_functions(system: RunTimeSystem, job: str, *, json: bool) -> None:
    async with system.connect_to_job(job) as peer:
        offered = (await peer.call(GetFunctions())).functions
    if json:
        print_json([{"name": it.name, "parameters": it.parameters, "summary": it.summary} for it in offered])
    elif not offered:
        print(f"{job} offers no functions")
    else:
        print("\n".join(map(_line, offered)))


def _line(function: OfferedFunction) -> str:
    line = f"{function.name}{function.parameters}"
    return f"{line}  {function.summary}" if function.summary else line
