"""Sites and blocks as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gspc_trio.components.rts.site_messages import BY_HAND, BlockStatus, SiteStatus


def describe_sites(sites: Sequence[SiteStatus]) -> Iterator[str]:
    """Yield lines for people: each site, and below it its blocks."""
    if not sites:
        yield "no sites"
    for site in sites:
        why = f": {site.detail}" if site.detail else ""
        yield (
            f"{site.site} ({site.provider}) is {site.state}{why}; {len(site.blocks)} of {site.slots} slots"
        )
        if site.ban:
            yield f"  {site.ban}"
        yield from map(_block_line, site.blocks)


def describe_site(site: SiteStatus) -> Iterator[str]:
    """Yield lines for people: all that is known of a site."""
    yield from describe_sites([site])
    running, up = sum(block.tasks for block in site.blocks), sum(block.up for block in site.blocks)
    cores = up * site.cores_per_node
    yield f"score {site.score:.3g}: history {site.history:g}, {_number(running, 'task')} on {_cores(cores)}"
    if site.retry_in_s is not None:
        yield f"asks again in {site.retry_in_s:.0f} s"
    yield "throttles:"
    for throttle in site.throttles:
        limit = "off" if throttle.limit is None else str(throttle.limit)
        yield f"  {throttle.name} = {limit}: {throttle.used} now"
    yield "settings:"
    yield from (f"  {line}" for line in _settings(site.settings))


def describe_plans(sites: Sequence[SiteStatus]) -> Iterator[str]:
    """Yield lines for people: why so much is planned at each site, and below it the blocks with their why."""
    if not sites:
        yield "no sites"
    for site in sites:
        why = f" ({site.state}: {site.detail})" if site.detail else ""
        yield f"{site.site}{why}: {site.plan}"
        for block in site.planned:
            shape = f"{_number(block.nodes, 'node')} with {_cores(block.cores)} for {block.walltime_s:g} s"
            yield f"  {shape}: {block.why}"
            if block.check:
                yield f"    {site.provider}: {block.check}"
            yield from (f"    | {line}".rstrip() for line in block.script.splitlines())


def describe_blocks(blocks: Sequence[BlockStatus]) -> Iterator[str]:
    """Yield lines for people: each block."""
    yield from [_block_line(block).strip() for block in blocks] or ["no blocks"]


def _block_line(block: BlockStatus) -> str:
    words = [f"  {block.block_id} is {block.state}"]
    if block.batch_id:
        words.append(f"batch job {block.batch_id}")
    words.append(f"{block.up} of {block.nodes} nodes up")
    if block.cores:  # of one that was started by hand nobody knows before it is up
        words.append(_cores(block.cores))
    if block.walltime_s:
        words.append(f"{block.walltime_s:g} s")
    if block.ends_in_s is not None:
        words.append(f"ends in {block.ends_in_s:.0f} s")
    if block.why == BY_HAND:
        words.append("started by hand")
    elif block.up:
        words.append(f"{_number(block.tasks, 'task')} on {_cores(block.busy_cores)}")
    return ", ".join(words) + (f": {block.detail}" if block.detail else "")


def _settings(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield settings as a file of sites has them."""
    for key, value in settings.items():
        is_number = value.replace(".", "", 1).isdigit()
        yield f"{key} = {value}" if is_number else f'{key} = "{value}"'


def _number(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _cores(number: int) -> str:
    return _number(number, "core")
