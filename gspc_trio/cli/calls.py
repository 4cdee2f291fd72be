"""What a running job offers besides its life: functions of its file, its ports, and a dump of its state."""

from __future__ import annotations

import json as json_texts
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import trio
from attrs import evolve
from cyclopts import Parameter
from msgspec.structs import replace

from gspc_trio.cli.common import CommandError, UsageError, print_json, running_connection
from gspc_trio.cli.job_commands import JobName, RunningFile
from gspc_trio.components.job.messages import (
    ApplicationCall,
    AskWorkflow,
    ClosePort,
    GetDump,
    GetFunctions,
    OfferedFunction,
    PutToken,
)
from gspc_trio.components.job.shell.clients import NotServed
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.workflow_file import LoadedWorkflow
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.protocol.values import RAISED_BY_USERS, dumps, loads
from gspc_trio.workflow.definition import Offered, takes_job

RtsFile: TypeAlias = Annotated[Path | None, Parameter(name=["--rts", "--connection-file"])]


PlaceName = Annotated[str, Parameter(help="Input port of the workflow.")]
ValueText = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help="Value of the token: for a workflow in Python JSON, or else a text; for others as the file's "
        "format writes it.",
    ),
]


def serve_functions(job: Job, functions: Mapping[str, Offered]) -> None:
    """Offer the functions of a workflow file to clients of its job."""
    for name, function in functions.items():
        job.serve(name, partial(function, job) if takes_job(function) else function)


async def call(
    job: JobName,
    function: str = "",
    arguments: Annotated[list[str] | None, Parameter(negative=(), allow_leading_hyphen=True)] = None,
    *,
    rts: RtsFile = None,
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
        async with system.connect_to_job(job) as peer:
            try:
                answer = await peer.call(ApplicationCall(function, dumps([positional, named])))
            except RemoteError as error:
                if error.kind == NotServed.__name__:
                    raise
                raise CommandError(f"{function} of job {job} raised {error.kind}: {error.message}") from error
    try:
        value = loads(answer.value)
    except RAISED_BY_USERS as error:  # opening it runs code of whoever made its class
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


async def put(job: JobName, place: PlaceName, value: ValueText, *, rts: RunningFile = None) -> None:
    """Put a token on an input port of a running job."""
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        await peer.call(PutToken(place, value))


async def ask(job: JobName, place: PlaceName, value: ValueText, *, rts: RunningFile = None) -> None:
    """Put a token on an input port of a running job, and print what the workflow answers to it."""
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        answer = await peer.call(AskWorkflow(place, value))
    print(loads(answer.value))


async def close(
    job: JobName,
    port: Annotated[str, Parameter(help="Input port of the workflow; without it, all that are open.")] = "",
    *,
    rts: RunningFile = None,
) -> None:
    """Say that no more tokens come to an open input port of a running job, which can end then."""
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        await peer.call(ClosePort(port))


async def dump_job(job: JobName, *, output: Path | None = None, rts: RtsFile = None) -> None:
    """Print the state of a running job's workflow as JSON: its tokens, and its tasks that have not finished.

    gspc-jobserver run FILE --from-dump goes on from there, if all values are plain: numbers, texts, bytes,
    lists, tuples and dicts of such. Which are not is said under not_said, and on standard error.

    Parameters
    ----------
    job
        Id of the job, as gspc-jobserver list shows it.
    output
        Write it to this file; by default it is printed.
    rts
        Connection file of the run-time system; by default that of the current user.
    """
    data, over = bytearray(), False
    async with join_rts(running_connection(rts)) as system, system.connect_to_job(job) as peer:
        while not over:
            part = await peer.call(GetDump(len(data)))
            data += part.data
            over = part.over
    data += b"\n"
    if output is None:
        sys.stdout.buffer.write(data)
    else:
        await trio.Path(output).write_bytes(data)
    if missing := json_texts.loads(data)["not_said"]:
        print(
            f"gspc-jobserver: this dump cannot start a job: JSON cannot hold {len(missing)} of its values, "
            f"for instance {missing[0]}",
            file=sys.stderr,
        )


def begun_with_dump(loaded: LoadedWorkflow, path: Path) -> LoadedWorkflow:
    """Return a workflow that begins with the state in a file.

    Raises:
        UsageError: there is none.
    """
    try:
        dump: object = json_texts.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"--from-dump {path}: {os.strerror(error.errno or 0)}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--from-dump {path}: this is no JSON: {error}") from error
    if not isinstance(dump, dict):
        raise UsageError(f"--from-dump {path}: this is no dump of a job")
    return replace(loaded, workflow=evolve(loaded.workflow, dump=dump))
