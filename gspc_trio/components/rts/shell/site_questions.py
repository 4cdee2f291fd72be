"""What is told of sites: settings, scores, blocks, plans, what batch systems and batch jobs say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import trio
from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchRequest,
    Provider,
    QueryFailed,
    request_of,
)
from gspc_trio.components.provision.blocks import SavedBlock
from gspc_trio.components.provision.find import ProviderError, find_provider
from gspc_trio.components.provision.planner import BlockPlan, NewBlock
from gspc_trio.components.provision.shell.batch import OUTPUT_FILE, block_script
from gspc_trio.components.provision.shell.block_folders import SHARED_FOLDER, last_lines
from gspc_trio.components.provision.shell.commands import run_command
from gspc_trio.components.provision.site_settings import ENGINE_OPTIONS, SiteSettings, written
from gspc_trio.components.provision.site_state import KnownSite, SiteBlock
from gspc_trio.components.provision.sites import Sites
from gspc_trio.components.provision.throttle import OF_FILES, ThrottleGate
from gspc_trio.components.rts.site_messages import BlockOutput, BlockStatus, SiteStatus, ThrottleStatus
from gspc_trio.components.rts.state import ManagedRif
from gspc_trio.core.resources import Resource
from gspc_trio.core.similar import did_you_mean

EXAMPLE = "BLOCK"
"""Stands for the name of a block, and of its directory, where there is none yet."""

OVER_MAX = 100
"""Blocks that are over of which it is kept what their jobs have printed last."""

LINES_MAX = 100
"""Lines of what a batch job has printed that are told at most."""

PLANNED, LARGEST = "planned", "largest"
"""States of blocks that nobody has asked for."""


def site_words(machine: Sites, site: KnownSite, now: float) -> str:
    """Return in words for people how a site is."""
    (state, detail), slots = site.shown, site.settings.blocks.slots
    ban = machine.scores.reason(site.name, now)
    words = f"site {site.name} is {state}{detail and f': {detail}'}{ban and f', {ban}'}"
    return f"{words}, {len(site.blocks)} of {slots} slots used"


def site_status(machine: Sites, site: KnownSite, now: float, files: ThrottleGate | None) -> SiteStatus:
    """Return how a site is, without what is planned; ``files`` counts transfers and operations, if any."""
    (state, detail), settings = site.shown, site.settings
    blocks, scores = settings.blocks, machine.scores
    uses = {**machine.gate.uses(site.name), **machine.gate.uses()}
    for name, use in () if files is None else ({**files.uses(site.name), **files.uses()}).items():
        if name in OF_FILES:
            uses[name] = use
    return SiteStatus(
        site.name,
        state,
        detail,
        settings.provider,
        blocks.slots,
        blocks.max_nodes,
        blocks.cores_per_node,
        blocks.max_time_s,
        None if site.retry_at is None else max(0.0, site.retry_at - now),
        tuple(_block_status(machine, block, now) for block in site.blocks.values()),
        score=scores.score(machine.use(site)),
        history=scores.history(site.name),
        ban=scores.reason(site.name, now),
        throttles=tuple(ThrottleStatus(name, used, limit) for name, (used, limit) in uses.items()),
        settings=written(settings),
    )


def with_plan(status: SiteStatus, settings: SiteSettings, planned: BlockPlan, largest: bool) -> SiteStatus:
    """Return the status of a site with what would be asked for now.

    Args:
        status: without it.
        settings: of the site.
        planned: what would be asked for.
        largest: if that is nothing, take the largest block that the site may ask for.
    """
    found = [_planned_status(PLANNED, new) for new in planned.new_blocks]
    if not found and largest:
        blocks = settings.blocks
        cores, time_s = blocks.nodes_max * blocks.cores_per_node, blocks.usable_s + blocks.reserve_s
        why = "nothing is planned: this is the largest block that the site may ask for"
        found.append(BlockStatus("", LARGEST, "", blocks.nodes_max, cores, time_s, 0, "", None, why))
    return replace(status, plan=planned.why, planned=tuple(found))


def _planned_status(state: str, new: NewBlock) -> BlockStatus:
    return BlockStatus("", state, "", new.nodes, new.cores, new.walltime_s, 0, "", None, new.why)


def _block_status(machine: Sites, block: SiteBlock, now: float) -> BlockStatus:
    state, detail = block.shown
    running = machine.running(block, now)
    return BlockStatus(
        block.block_id,
        state,
        detail or (machine.gate.why(block.block_id) or ""),
        block.nodes,
        block.cores,
        block.walltime_s,
        len(block.up),
        block.batch_id,
        None if block.ends_at is None else max(0.0, block.ends_at - now),
        block.why,
        sum(tasks.count for tasks in running),
        min(block.cores, sum(tasks.count * tasks.cores for tasks in running)),
    )


def node_to_come(name: str, cores: int) -> tuple[Resource, ...]:
    """Return what a node will bring at least; nobody knows its memory yet."""
    node = Resource(f"{name}.node", "node", memory_bytes=1 << 62)
    socket = Resource(f"{name}.socket0", "socket", (node.resource_id,))
    below = (Resource(f"{name}.core{number}", "core", (socket.resource_id,)) for number in range(cores))
    return (node, socket, *below)


def check_request(provider: Provider, settings: SiteSettings) -> None:
    """See that the batch system has jobs such as the blocks of a site.

    Raises:
        BadRequest: it has not.
    """
    foreign = [key for key in ENGINE_OPTIONS if key in settings.options and key not in provider.options]
    if foreign:
        raise BadRequest(f"{provider.name} has no setting {foreign[0]!r}")
    own = {key: value for key, value in settings.options.items() if key in provider.options}
    request = request_of("block", settings.blocks.cores_per_node, settings.options)
    provider.submit(evolve(request, options=own))


async def with_script(
    provider: Provider, options: dict[str, str], site: str, block: BlockStatus, check: bool
) -> BlockStatus:
    """Return the status of a block that is planned, with its script, and with what the batch system says.

    Args:
        provider: of the site.
        options: of the block.
        site: its name.
        block: that is planned.
        check: ask the batch system whether such a job could run.
    """
    shared = options.get("shared") or str(Path.home() / SHARED_FOLDER)
    own = {key: options[key] for key in provider.options if key in options}
    try:
        request = request_of("gspc-check", block.cores // block.nodes, options)
        folder = f"{shared}/{EXAMPLE}"
        request = evolve(request, nodes=block.nodes, options=own, folder=folder)
        script = block_script(provider, request, f"{site}/{EXAMPLE}", options, f"{folder}/enrol")
        said = await _said(provider, evolve(request, script=script)) if check else ""
    except ValueError as error:  # BadRequest is one
        return replace(block, check=f"never: {error}")
    return replace(block, script=script, check=said)


async def _said(provider: Provider, request: BatchRequest) -> str:
    """Return what the batch system says of a job that nobody wants to have now.

    Raises:
        BadRequest: it has no such job.
    """
    command = provider.check(request)
    if command is None:
        return f"{provider.name} cannot be asked"
    try:
        result = await run_command(command, provider.submit_input(request))
        if result is None:
            return "no answer in time"
        refusal = provider.checked(result)
    except QueryFailed as error:
        return f"no answer: {error}"
    except OSError as error:
        return f"no answer: cannot run {command[0]} here: {error.strerror}"
    return f"never: {refusal}" if refusal else "it could run"


async def printed(provider: Provider | None, block: SavedBlock) -> tuple[str, ...]:
    """Return the last lines that the batch job of a block has printed so far."""
    command = provider.output(block.name) if provider is not None else None
    if command is None:
        path = str(Path(block.folder) / OUTPUT_FILE)
        return tuple(await trio.to_thread.run_sync(last_lines, path))
    try:
        result = await run_command(command)
    except OSError as error:
        return (f"cannot run {command[0]} here: {error.strerror}",)
    return () if result is None else tuple(result.output.splitlines()[-LINES_MAX:])


def provider_by_hand(block_id: str, rif: ManagedRif | None) -> Provider | None:
    """Return the provider of a block that somebody has started; None where none is known.

    Args:
        block_id: of the block.
        rif: one of it, if there is one.
    """
    if rif is None or "/" in block_id:
        return None
    with suppress(ProviderError):  # a strategy may have a name of its own
        return find_provider(rif.strategy, rif.options.get("via", ""), rif.options.get("address", ""))
    return None


class Outputs:
    """What the batch jobs of blocks that are over have printed last.

    Attributes:
        over: block -> what is told of it.
    """

    def __init__(self) -> None:
        self.over: dict[str, BlockOutput] = {}

    def note(self, block_id: str, said: Sequence[str], reason: str) -> None:
        """Keep it, and forget the oldest."""
        self.over[block_id] = BlockOutput(tuple(said[-LINES_MAX:]), reason)
        if len(self.over) > OVER_MAX:
            del self.over[next(iter(self.over))]


def no_block(block_id: str, names: Iterable[str]) -> str:
    """Return what people are told of a block that is not there; ``names`` are."""
    there = list(dict.fromkeys(names))
    near, told = did_you_mean(block_id, there), ", ".join(there) or "none"
    return f"there is no block {block_id}{near}; there are: {told}"
