"""``gspc-coallocate``: check and run requests for many resources at once, in stages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import App, Parameter

from gspc_trio.cli.coallocation import services
from gspc_trio.cli.coallocation.services import SiteFiles, own_service, sites_given
from gspc_trio.cli.common import CommandError, DecidedStatus, print_json, run_command
from gspc_trio.components.coallocation.flow import CoJobState
from gspc_trio.components.coallocation.jobs import CoJob, jobs_with_options
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.shell.request import HERE, CoJobEnd, open_coallocation, read_jobs
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.components.coallocation.tree import (
    TEXT_BYTES_MAX,
    Multistage,
    Request,
    RslError,
    jobs_of,
    services_of,
)
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.version import VERSION

app: App = App(
    name="gspc-coallocate",
    help="Run programs that need many resources at once, in stages.",
    version=VERSION,
    version_flags=["--version", "-v"],
)

app.command(services.serve)
app.command(services.list_requests, name="list")
app.command(services.status)
app.command(services.cancel)
app.command(services.barrier)
app.command(services.stop)

WIDTH_MAX = 72
"""Of a longer request the beginning is shown."""

WAITS_MAX = 20
"""Of more jobs that one waits for the first ones are shown."""

Json = Annotated[bool, Parameter(negative=())]
RequestFile = Annotated[str, Parameter(allow_leading_hyphen=True)]


@app.command
async def check(request: RequestFile, *, jobs: Path | None = None, json: Json = False) -> None:
    """Show what a request says: its services, numbered breadth first, and the order of its jobs.

    Parameters
    ----------
    request
        File with the request, as text or XML; - for standard input.
    jobs
        File in TOML with the jobs that the request names; then these are checked, too. Without it any name
        may stand for a job.
    json
        Print it as JSON.
    """
    name, tree = await _read(request)
    if jobs is not None:
        _with_place(name, tree, jobs)
    order = order_of(tree)
    texts = [_short(print_text(job)) for job in jobs_of(tree)]
    services = list(_services(tree))
    if json:
        print_json(
            {
                "request": print_text(tree),
                "services": [{"service": one, "above": above, "job": job} for one, above, job, _ in services],
                "jobs": [
                    {"job": number, "text": text, "waits": order.waits(number)}
                    for number, text in enumerate(map(print_text, jobs_of(tree)), 1)
                ],
            }
        )
        return
    print("services")
    for number, above, job, text in services:
        where = f"below C{above}" if above else "asked by the client"
        print(f"  C{number:<6} {where:<20} {f'job {job}: ' if job else ''}{text}")
    print("order")
    for number, text in enumerate(texts, 1):
        print(f"  job {number:<6} {_waits_text(order.waits(number)):<20} {text}")


def _services(tree: Request) -> Iterator[tuple[int, int, int, str]]:
    """Yield of each service its number, that of the one above, its job (0: it has stages) and its text."""
    above_of: list[tuple[Request, int]] = list(services_of(tree))
    below: list[list[int]] = [[] for _ in range(len(above_of) + 1)]
    for number, (_, above) in enumerate(above_of, 1):
        below[above].append(number)
    jobs: dict[int, int] = {}
    stack = [1]
    while stack:
        number = stack.pop()
        if isinstance(above_of[number - 1][0], Multistage):
            stack.extend(reversed(below[number]))
        else:
            jobs[number] = len(jobs) + 1
    for number, (one, above) in enumerate(above_of, 1):
        yield number, above, jobs.get(number, 0), _short(print_text(one))


@app.command
async def run(
    request: RequestFile,
    *,
    jobs: Path | None = None,
    rts: SiteFiles = None,
    service: Path | None = None,
    json: Json = False,
) -> int:
    """Run the jobs of a request in their order; the exit status is 1 if one fails or is not run.

    What programs print is printed when their job has ended; lines about jobs go to standard error.

    Parameters
    ----------
    request
        File with the request, as text or XML; - for standard input.
    jobs
        File in TOML with the jobs that the request names: a table of options for each.
    rts
        Connection file of the run-time system; by default the one that gspc-rts start writes. NAME=FILE
        names it as a site; repeat it for several. With --service: bring a credential of the site NAME.
    service
        Connection file of the co-allocation service that runs it; without it, it is run here.
    json
        Print a JSON array with an object for each job at the end, and nothing else.
    """
    name, tree = await _read(request)
    if jobs is not None:
        _with_place(name, tree, jobs)
    sites = sites_given(rts, HERE) if rts or service is None else {}

    def tell(job: CoJob, end: CoJobEnd) -> None:
        if json:
            return
        if end.output:
            print(end.output, end="" if end.output.endswith("\n") else "\n", flush=True)
        reason = f": {end.reason}" if end.reason and end.state is not CoJobState.CANCELLED else ""
        print(f"gspc-coallocate: job {job.number} ({job.name}) {end.state}{reason}", file=sys.stderr)

    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(tuned_collector())
            if service is None:
                service = await stack.enter_async_context(own_service(HERE, sites))
                sites = sites if service is None else {}
            opening = open_coallocation(tree, jobs=jobs, rts=sites, service=service, on_change=tell)
            ends = await (await stack.enter_async_context(opening)).wait()
    except RslError as error:
        raise CommandError(f"{name}: {error}") from None
    if json:
        print_json([_end(end) for end in ends])
    bad = sum(end.state is not CoJobState.FINISHED for end in ends)
    if bad and not json and len(ends) > 1:
        print(f"gspc-coallocate: {bad} of {len(ends)} jobs did not finish", file=sys.stderr)
    return DecidedStatus(1 if bad else 0)


def _end(end: CoJobEnd) -> dict[str, object]:
    return {
        "job": end.number,
        "name": end.name,
        "state": end.state.value,
        "reason": end.reason,
        "output": end.output,
    }


async def _read(request: str) -> tuple[str, Request]:
    """Return what a request is called in messages, and its tree."""
    name = "standard input" if request == "-" else request
    data = await trio.to_thread.run_sync(_bytes_of, request)
    try:
        return name, parse_coallocation(data)
    except RslError as error:
        raise CommandError(f"{name}: {error}") from None


def _bytes_of(request: str) -> bytes:
    if request == "-":
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    with Path(request).open("rb") as file:
        return file.read(TEXT_BYTES_MAX + 1)


def _with_place(name: str, tree: Request, jobs: Path) -> Sequence[CoJob]:
    """Return the jobs of a request with what a file says of them."""
    try:
        return jobs_with_options(tree, read_jobs(jobs))
    except RslError as error:
        raise CommandError(f"{name}: {error}" if error.line else str(error)) from None


def _short(text: str) -> str:
    return text if len(text) <= WIDTH_MAX else f"{text[:WIDTH_MAX]}..."


def _waits_text(awaited: Sequence[int]) -> str:
    if not awaited:
        return "at once"
    shown = ", ".join(map(str, awaited[:WAITS_MAX]))
    more = f" and {len(awaited) - WAITS_MAX} more" if len(awaited) > WAITS_MAX else ""
    return f"after {shown}{more}"


def main() -> None:
    """Run the command ``gspc-coallocate``."""
    run_command(app)


if __name__ == "__main__":
    main()
