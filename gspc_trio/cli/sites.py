"""``gspc-rts site`` and ``gspc-rts block``: the sites of a running run-time system, and their blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from gspc_trio.cli.arguments import MaybeWhole, Settings
from gspc_trio.cli.common import CommandError, UsageError, parse_option, print_json, running_connection
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.components.rts.site_lines import describe_blocks, describe_plans, describe_site, describe_sites
from gspc_trio.components.rts.site_messages import SiteChange, SiteStatus
from gspc_trio.core.similar import did_you_mean
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.protocol.plain import to_plain

app: App = App(name="site", help="Ask batch systems for hosts as tasks need them.")
block_app: App = App(name="block", help="Look at the batch jobs of sites, and end them.")

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
    max_nodes: MaybeWhole = None,
    cores_per_node: MaybeWhole = None,
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
    from gspc_trio.components.provision.find import NO_PROVIDER
    from gspc_trio.components.provision.site_settings import BadSite, site_settings

    try:
        site_settings(name, given)
    except BadSite as error:
        raise UsageError(str(error)) from error
    async with join_rts(running_connection(connection_file)) as rts:
        try:
            await rts.add_site(name, given)
        except RemoteError as error:
            if NO_PROVIDER in error.message:
                raise UsageError(f"--provider {provider}: {error.message}") from error
            raise
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


@app.command
async def show(name: str, *, connection_file: RunningFile = None, json: Json = False) -> None:
    """Show one site: its settings, its score and why, its throttles, and its blocks.

    Parameters
    ----------
    name
        Name of the site.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        site = _named(await rts.sites(), name)
    if json:
        print_json(to_plain(site))
    else:
        print("\n".join(describe_site(site)))


def _named(sites: Sequence[SiteStatus], name: str) -> SiteStatus:
    """Return the site of a name.

    Raises:
        CommandError: there is none.
    """
    found = {site.site: site for site in sites}
    if name not in found:
        there = ", ".join(found) or "none"
        raise CommandError(f"there is no site {name!r}{did_you_mean(name, found)}; there are: {there}")
    return found[name]


@app.command(name="plan")
async def plan_sites(
    name: str | None = None,
    /,
    *,
    check: Annotated[bool, Parameter(negative=())] = False,
    connection_file: RunningFile = None,
    json: Json = False,
) -> None:
    """Say which blocks would be asked for now, why, and with which scripts, without asking for them.

    Parameters
    ----------
    name
        Name of the site; by default all sites.
    check
        Ask the batch system whether it could ever run them, for example with sbatch --test-only. If no block
        is planned, ask for the largest one that the site may have.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        sites = await rts.sites(planned=True, check=check)
    if name is not None:
        sites = (_named(sites, name),)
    if json:
        print_json({"sites": to_plain(sites)})
    else:
        print("\n".join(describe_plans(sites)))


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


@block_app.command(name="list")
async def list_blocks(*, connection_file: RunningFile = None, json: Json = False) -> None:
    """List all blocks, also those started by hand: batch jobs, states, shapes, time left and tasks."""
    async with join_rts(running_connection(connection_file)) as rts:
        blocks = await rts.blocks()
    if json:
        print_json({"blocks": to_plain(blocks)})
    else:
        print("\n".join(describe_blocks(blocks)))


@block_app.command
async def log(block: str, *, connection_file: RunningFile = None, json: Json = False) -> None:
    """Print the last lines that the batch job of a block has printed, also of a block that is over.

    Parameters
    ----------
    block
        Name of the block, for example hpc/b3.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        printed = await rts.block_output(block)
    if json:
        print_json(to_plain(printed))
        return
    for line in printed.lines:
        print(line)
    if printed.over:
        print(f"block {block} is over: {printed.over}", file=sys.stderr)


@block_app.command
async def cancel(block: str, *, connection_file: RunningFile = None, json: Json = False) -> None:
    """End a block now; what runs there runs again elsewhere.

    Parameters
    ----------
    block
        Name of the block, for example hpc/b3.
    """
    async with join_rts(running_connection(connection_file)) as rts:
        await rts.end_block(block)
    if json:
        print_json({"block": block, "cancelled": True})
    else:
        print(f"block {block} is cancelled")
