"""Which stages of a request services below run: each goes to one that can hold all of its jobs (COA-3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve
from msgspec.json import decode, encode
from msgspec.structs import replace

from gspc_trio.components.coallocation.agents.selection import at_steps, choose
from gspc_trio.components.coallocation.agents.words import PartNeed, SiteOffer, SubmitRequest
from gspc_trio.components.coallocation.jobs import CoJob
from gspc_trio.components.coallocation.language import parse_coallocation
from gspc_trio.components.coallocation.running import GivenStage, ladders_of, needs_of
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.components.coallocation.tree import (
    Multistage,
    NamedJob,
    Option,
    Request,
    SingleStage,
    jobs_of,
)
from gspc_trio.components.coallocation.vocabulary import waits_of


def given_stages(
    tree: Request,
    told: SubmitRequest,
    jobs: Sequence[CoJob],
    below: Mapping[str, Sequence[SiteOffer]],
    request_id: str,
    outlives: bool = False,
) -> Iterator[GivenStage]:
    """Yield the stages that services below run, none of which is within another.

    Where jobs say themselves what they wait for, a stage is given away whose jobs wait for none of another.

    Args:
        tree: of the request.
        told: what its asker has said.
        jobs: its jobs.
        below: service below -> what it has.
        request_id: begins what the services below call their stages.
        outlives: they go on for a while when this service has crashed.
    """
    if not below or not isinstance(tree, Multistage):
        return
    awaited = [_awaited(job) for job in jobs_of(tree)]
    is_stated = told.is_stated or any(awaited)
    named: dict[str, object] = decode(told.jobs)
    choice = _Choice(below)
    stack: list[tuple[Multistage, dict[str, Option], int]] = [(tree, {}, 1)]
    while stack:
        one, above, first = stack.pop()
        options = above | {option.name: option for option in one.options}
        for stage in one.stages:
            count = sum(1 for _ in jobs_of(stage))
            if isinstance(stage, Multistage):
                numbers = range(first, first + count)
                is_closed = all(number in numbers for one in numbers for number in awaited[one - 1])
                child = choice.find(jobs[first - 1 : first - 1 + count]) if is_closed else ""
                if child:
                    own = options | {option.name: option for option in stage.options}
                    stages = _renumbered(stage, first - 1).stages if is_stated else stage.stages
                    text = print_text(Multistage(stages, tuple(own.values())))
                    known = {name: named[name] for name in sorted(_names(stage, named)) if name in named}
                    name = f"{request_id}.{first}"
                    said = replace(
                        told,
                        request=name,
                        text=text,
                        jobs=encode(known).decode(),
                        is_stated=is_stated,
                        outlives=outlives,
                    )
                    yield GivenStage(child, first, count, said)
                else:
                    stack.append((stage, options, first))
            first += count


def _awaited(job: Request) -> tuple[int, ...]:
    """Return the numbers that a job says it waits for."""
    waits = (option for option in job.options if option.name == "wait")
    return tuple(number for option in waits for number, _ in waits_of(option))


def _renumbered(stage: Multistage, before: int) -> Multistage:
    """Return a stage whose jobs are numbered from 1; so many are before it."""
    return evolve(
        stage,
        stages=tuple(
            _renumbered(one, before)
            if isinstance(one, Multistage)
            else evolve(one, options=tuple(_with_numbers(option, before) for option in one.options))
            for one in stage.stages
        ),
    )


def _with_numbers(option: Option, before: int) -> Option:
    if option.name != "wait":
        return option
    return Option("wait", (",".join(str(number - before) for number, _ in waits_of(option)),))


class _Choice:
    """Finds the service for a stage: of those that can hold it the one that has got the least for its size.

    Args:
        below: service below -> what it has.
    """

    def __init__(self, below: Mapping[str, Sequence[SiteOffer]]) -> None:
        self._below = below
        self._sizes = {
            child: max(1, sum(sum(offer.there.values()) for offer in offers))
            for child, offers in below.items()
        }
        self._given: Counter[str] = Counter()
        self._known: dict[tuple[str, tuple[PartNeed, ...]], bool] = {}

    def find(self, jobs: Sequence[CoJob]) -> str:
        """Return the service that gets these jobs, "" if none can hold them."""
        needed = {_least(job): None for job in jobs}
        able = [child for child in sorted(self._below) if all(self._holds(child, one) for one in needed)]
        if not able:
            return ""
        child = min(able, key=lambda name: (self._given[name] / self._sizes[name], -self._sizes[name], name))
        self._given[child] += len(jobs)
        return child

    def _holds(self, child: str, needs: tuple[PartNeed, ...]) -> bool:
        key = child, needs
        if key not in self._known:
            self._known[key] = not isinstance(choose(needs, self._below[child]), str)
        return self._known[key]


def _least(job: CoJob) -> tuple[PartNeed, ...]:
    """Return the least that a job is content with."""
    ladders = ladders_of(job)
    needs = at_steps(needs_of(job, ""), ladders, [len(one.values) - 1 for one in ladders])
    return tuple(replace(need, payload=b"") for need in needs)


def _names(request: Request, named: Mapping[str, object]) -> set[str]:
    """Return the names of the jobs that a request names, and of those that their texts name."""
    found: set[str] = set()
    unread = [request]
    while unread:
        new = {name for job in jobs_of(unread.pop()) for name in _parts_named(job)} - found
        found |= new
        texts = (named.get(name) for name in new)
        unread.extend(parse_coallocation(text) for text in texts if isinstance(text, str))
    return found


def _parts_named(job: Request) -> Iterator[str]:
    parts = job.parts if isinstance(job, SingleStage) else (job,)
    return (part.name for part in parts if isinstance(part, NamedJob))
