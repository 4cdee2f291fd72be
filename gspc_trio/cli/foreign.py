"""Workflow files that others wrote: how they are to be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from gspc_trio.components.job.shell.workflow_file import FROM_ITSELF, Reading


def _firings(_: object, number: int | None) -> None:
    if number is not None and number < 1:
        raise ValueError("a number of firings is 1 or more")


@Parameter(name="*")
@dataclass(frozen=True)
class ReadingOptions:
    """The options that say how a workflow file is to be read."""

    format: Annotated[
        str,
        Parameter(
            help="Format of the workflow file: python, pnml, or one that an installed package offers. "
            "By default its suffix and its beginning decide."
        ),
    ] = ""
    tasks: Annotated[
        Path | None,
        Parameter(
            help="Python file with a function for each transition that is a task, of its name or id; "
            "the other transitions just pass tokens on. For pnml."
        ),
    ] = None
    firings: Annotated[
        int | None,
        Parameter(validator=_firings, help="How often transitions fire at most, all together. For pnml."),
    ] = None
    net: Annotated[str, Parameter(help="Id of the net to run, if the file has several. For pnml.")] = ""


HowToRead = Annotated[ReadingOptions | None, Parameter(name="*")]


def reading_of(stated: ReadingOptions | None) -> Reading:
    """Return how a workflow file is to be read."""
    if stated is None:
        return FROM_ITSELF
    tasks = "" if stated.tasks is None else str(stated.tasks.resolve())
    return Reading(format=stated.format, tasks=tasks, firings=stated.firings, net=stated.net)
