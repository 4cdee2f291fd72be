"""``gspc-rts site``: add, list, pause, resume and remove the sites of a running run-time system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gspc_trio.cli.arguments import Settings
from gspc_trio.cli.common import UsageError, parse_option, print_json, running_connection
from gspc_trio.components.rts.messages import BlockStatus, SiteChange, SiteStatus
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.protocol.plain import to_plain

app = App(name="site", help="Ask batch systems for hosts as tasks need them.")

RunningFile = Annotated[
    Path | None,
    Parameter(
        name=["--connection-file", "--rts"],
        help="Connection file of the run-time system; by default that of the current user.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object, not text.")]


@app.command
async def add(
    name: str,
    *arguments: str,
    provider: str,
    max_time: str = "",
    max_nodes: int | None = None,
    cores_per_node: int | None = None,
    via: str = "",
    settings: Settings = None,
    connection_file: RunningFile = None,
) -> None:
    """Ask for blocks at a site from now on: batch jobs whose nodes are hosts of the run-time system.

    Parameters
    ----------
    name
        Name of the site.
    arguments
        After --: further arguments for the command of the batch system that submits.
    provider
        Batch system, for example slurm.
    max_time
        The longest time that a block may ask for, for example 2h.
    max_nodes
        The most nodes that a block may ask for.
    cores_per_node
        Cores of each node.
    via
        Another provider that runs the commands of this one, for example ssh:login.
    settings
        key=value, any other setting of a site (docs/sites.md); repeat it to set several.
    """
    given = dict(map(parse_option, settings or []))
    stated = {"provider": provider, "max_time": max_time, "via": via, "arguments": " ".join(arguments)}
    numbers = {"max_nodes": max_nodes, "cores_per_node": cores_per_node}
    given |= {key: value for key, value in stated.items() if value}
    given |= {key: str(value) for key, value in numbers.items() if value is not None}
    from gspc_trio.components.provision.site_settings import BadSite, site_settings

    try:
        site_settings(name, given)
    except BadSite as error:
        raise UsageError(str(error)) from error
    async with join_rts(running_connection(connection_file)) as rts:
        await rts.add_site(name, given)
    print(f"site {name} is there")


@app.command(name="list")
async def list_sites(*, connection_file: RunningFile = None, json: Json = False) -> None:
    """List the sites and their blocks."""
    async with join_rts(running_connection(connection_file)) as rts:
        sites = await rts.sites()
    if json:
        print_json({"sites": to_plain(sites)})
    else:
        print("\n".join(describe_sites(sites)))


def describe_sites(sites: Sequence[SiteStatus]) -> Iterator[str]:
    """Yield lines for people: each site, and below it its blocks."""
    if not sites:
        yield "no sites"
    for site in sites:
        why = f": {site.detail}" if site.detail else ""
        yield (
            f"{site.site} ({site.provider}) is {site.state}{why}; {len(site.blocks)} of {site.slots} slots"
        )
        yield from map(_block_line, site.blocks)


@app.command(name="plan")
async def plan_sites(*, connection_file: RunningFile = None, json: Json = False) -> None:
    """Say which blocks would be asked for now, and why, without asking for them."""
    async with join_rts(running_connection(connection_file)) as rts:
        sites = await rts.sites(planned=True)
    if json:
        print_json({"sites": to_plain(sites)})
    else:
        print("\n".join(describe_plans(sites)))


def describe_plans(sites: Sequence[SiteStatus]) -> Iterator[str]:
    """Yield lines for people: why so much is planned at each site, and below it the blocks with their why."""
    if not sites:
        yield "no sites"
    for site in sites:
        why = f" ({site.state}: {site.detail})" if site.detail else ""
        yield f"{site.site}{why}: {site.plan}"
        for block in site.planned:
            nodes = "1 node" if block.nodes == 1 else f"{block.nodes} nodes"
            cores = "1 core" if block.cores == 1 else f"{block.cores} cores"
            yield f"  {nodes} with {cores} for {block.walltime_s:g} s: {block.why}"


def _block_line(block: BlockStatus) -> str:
    words = [f"  {block.block_id} is {block.state}"]
    if block.batch_id:
        words.append(f"batch job {block.batch_id}")
    words.append(f"{block.up} of {block.nodes} nodes up, {block.cores} cores, {block.walltime_s:g} s")
    if block.ends_in_s is not None:
        words.append(f"ends in {block.ends_in_s:.0f} s")
    return ", ".join(words) + (f": {block.detail}" if block.detail else "")


@app.command
async def pause(name: str, *, connection_file: RunningFile = None) -> None:
    """Ask for no further block at this site; its blocks go on.

    Parameters
    ----------
    name
        Name of the site.
    """
    await _change(name, SiteChange.PAUSE, connection_file)
    print(f"site {name} is paused")


@app.command
async def resume(name: str, *, connection_file: RunningFile = None) -> None:
    """Ask for blocks at this site again, also if it was paused because nothing came of them.

    Parameters
    ----------
    name
        Name of the site.
    """
    await _change(name, SiteChange.RESUME, connection_file)
    print(f"site {name} is open")


@app.command
async def remove(name: str, *, connection_file: RunningFile = None) -> None:
    """Forget a site that has no blocks.

    Parameters
    ----------
    name
        Name of the site.
    """
    await _change(name, SiteChange.REMOVE, connection_file)
    print(f"site {name} is removed")


async def _change(name: str, change: SiteChange, connection_file: Path | None) -> None:
    async with join_rts(running_connection(connection_file)) as rts:
        await rts.change_site(name, change)
