"""``gspc-launcher status|cancel|log``: a study that runs, seen and changed through its HTTP interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import parse_qsl

from cyclopts import App, Parameter

from gspc_trio.cli.arguments import LineCount, MaybeWhole, Whole
from gspc_trio.cli.common import CommandError, UsageError, print_json
from gspc_trio.components.launcher.http_questions import StudyRefuses, StudyUnreachable
from gspc_trio.components.launcher.shell.http_client import (
    StudyClient,
    find_study,
)
from gspc_trio.tui.text import duration, plural

StudyDirectory = Annotated[
    Path | None,
    Parameter(
        name=["--study", "-s"],
        help="Directory of the study (output_dir); by default the newest study-* here that runs.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, not text.")]
Told: TypeAlias = Mapping[str, object]


def add_study_commands(app: App) -> None:
    """Add the commands about a study that runs."""
    for command in (status, cancel, log):
        app.command(command)


def status(
    *,
    study: StudyDirectory = None,
    state: str | None = None,
    jobs: Annotated[bool, Parameter(negative=())] = False,
    json: Json = False,
) -> None:
    """Print how a study is: its server, its clients by state, what waits.

    Parameters
    ----------
    state
        Print the jobs in this state, too, or with clients in it; for example failed.
    jobs
        Print all jobs, too.
    """
    client = _client(study)
    told = _ask(client, "status")
    found = list(_jobs(client, state)) if jobs or state is not None else []
    if json:
        print_json({**told, "found": found} if jobs or state is not None else told)
        return
    print("\n".join([*describe_status(client.directory, told), *(describe_job_line(job) for job in found)]))


def cancel(*client_ids: Whole, study: StudyDirectory = None) -> None:
    """Cancel clients; others of their groups go on. The server is told, and decides what follows.

    Parameters
    ----------
    client_ids
        Of the clients, as the server has named them.
    """
    if not client_ids:
        raise UsageError("which clients? name their ids; a whole study ends with Ctrl-C in its launcher")
    client = _client(study)
    for client_id in client_ids:
        try:
            client.cancel(client_id)
        except (StudyRefuses, StudyUnreachable) as error:
            raise CommandError(str(error)) from error
        print(f"client {client_id} is being cancelled")


def log(
    *,
    study: StudyDirectory = None,
    uid: MaybeWhole = None,
    client: MaybeWhole = None,
    stream: Literal["out", "err"] = "out",
    tail: LineCount = 100,
) -> None:
    """Print the last lines that the server has printed, or a client.

    Parameters
    ----------
    uid
        Number of a job (status --jobs prints it); by default that of the present server.
    client
        Id of a client; by default that of its newest job is looked up.
    stream
        out, or err for what was printed as errors.
    tail
        How many lines.
    """
    asked = _client(study)
    if uid is None and client is None:
        server = _ask(asked, "status")["server"]
        if not isinstance(server, dict):
            raise CommandError("no server was submitted yet")
        uid = int(server["uid"])
    elif uid is None:
        uid = _job_of(asked, client)
    told = _ask(asked, "jobs", uid, "log", stream=stream, tail=tail, client=client)
    print(told["text"], end="")


def _job_of(asked: StudyClient, client: int | None) -> int:
    for job in _jobs(asked, None):
        clients = job.get("clients")
        if isinstance(clients, list) and any(one["client_id"] == client for one in clients):
            if job["uid"] is None:
                raise CommandError(f"client {client} waits for a place below the limit of jobs")
            return int(str(job["uid"]))
    raise CommandError(f"there is no client {client}")


def _client(study: Path | None) -> StudyClient:
    try:
        return StudyClient(find_study(study, Path.cwd()))
    except StudyUnreachable as error:
        raise CommandError(str(error)) from error


def _ask(study: StudyClient, /, *path: object, **query: object) -> dict[str, object]:
    try:
        return study.get(*path, **query)
    except (StudyRefuses, StudyUnreachable) as error:
        raise CommandError(str(error)) from error


def _jobs(client: StudyClient, state: str | None) -> Iterator[dict[str, object]]:
    """Yield the jobs that fit, page by page."""
    then: object = ""
    while True:
        told = _ask(client, "jobs", state=state, **dict(parse_qsl(str(then))))
        jobs, then = told["jobs"], told["next"]
        assert isinstance(jobs, list)
        yield from jobs
        if not then:
            return


def describe_status(directory: Path, told: Told) -> Iterator[str]:
    """Yield lines on a study, for people."""
    why = f": {told['detail']}" if told["detail"] else ""
    yield f"study {told['study']} in {directory} is {told['state']}{why}"
    server = told["server"]
    if isinstance(server, dict):
        job = f", job {server['job_id']}" if server["job_id"] else ""
        line = f"server {told['incarnation']} is {server['state']} (UID {server['uid']}{job})"
        heard = told["heard_ago_s"]
        if isinstance(heard, float):
            line += f", its last word was {told['word']!r} {duration(heard)} ago"
        yield line
    clients = told["clients"]
    assert isinstance(clients, dict)
    yield "clients: " + (", ".join(f"{number} {state}" for state, number in clients.items()) or "none yet")
    restarts, refusals = int(str(told["restarts"])), int(str(told["refusals"]))
    yield (
        f"{told['jobs']} of at most {plural(int(str(told['job_limit'])), 'job')}, "
        f"{plural(restarts, 'restart')}, {plural(refusals, 'refused connection')}"
    )
    if told["stale"]:
        yield f"the states may be old: {told['stale']}"


def describe_job_line(job: Told) -> str:
    """Return a line on a job, for people."""
    clients = job.get("clients")
    uid = "-" if job["uid"] is None else str(job["uid"])
    if not isinstance(clients, list):
        what = f"server {job['incarnation']}"
    else:
        what = ", ".join(f"client {one['client_id']} {one['state']}" for one in clients)
    why = f"  ({job['detail']})" if job.get("detail") else ""
    return f"{uid:>6}  {job.get('job_id', ''):<10}  {job['state']:<10}  {what}{why}"
