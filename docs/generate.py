#!/usr/bin/env python3
"""Write the parts of the documentation that come from the code: diagrams, commands, public names and more.

Run as ``make docs``. A test compares what is committed with what this would write.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from cyclopts import App
from msgspec import Struct

DOCS = Path(__file__).parent
WIDTH = 96
MARKER = "<!-- What follows is generated: make docs -->"
"""In a page that is written by hand above it, and generated below."""

APPS = (
    "gspc_trio.cli.rts",
    "gspc_trio.cli.jobserver",
    "gspc_trio.cli.top",
    "gspc_trio.cli.iml",
    "gspc_trio.cli.launcher",
    "gspc_trio.cli.coallocation.commands",
    "gspc_trio.cli.monitor.commands",
)


class Machine(Struct, frozen=True):
    """A machine with a table of transitions.

    Attributes:
        title: heading.
        module: where the table is.
        table: its name.
        first: the state in which one is made.
        text: what it is about.
    """

    title: str
    module: str
    table: str
    first: str
    text: str


MACHINES = (
    Machine(
        "Job", "gspc_trio.components.job.machine", "TRANSITIONS", "NEW",
        "One run of a workflow, as its job server sees it.",
    ),
    Machine(
        "Task of a net", "gspc_trio.workflow.state", "TRANSITIONS", "READY",
        "A transition that has fired, as the workflow engine sees it. `submitted` means that the scheduler "
        "has it; only `finished` lets go of the tokens it took. A failed or cancelled task can be made ready "
        "again.",
    ),
    Machine(
        "Task of a graph", "gspc_trio.workflow.graph", "TRANSITIONS", "READY",
        "A call that was submitted to an executor. It is `ready` also while it waits for the results of "
        "others, and fails without having run when one of those fails.",
    ),
    Machine(
        "Task in the scheduler", "gspc_trio.components.job.scheduler.state", "TRANSITIONS", "WAITING",
        "From the time it is ready to its end: where the job's scheduler keeps it.",
    ),
    Machine(
        "Demand at the resource manager", "gspc_trio.components.rm.parts", "DEMAND_TRANSITIONS", "MET",
        "What a job asks for: a number of grants (credit) for each shape of request.",
    ),
    Machine(
        "Grant at the resource manager", "gspc_trio.components.rm.parts", "GRANT_TRANSITIONS", "HELD",
        "A resource, or several at once, in the hands of one job.",
    ),
    Machine(
        "RIF at the run-time system", "gspc_trio.components.rts.state", "TRANSITIONS", "STARTING",
        "The runtime interface of one host through all its incarnations. A lost one is started again.",
    ),
    Machine(
        "Resource at its RIF", "gspc_trio.components.rif.at_work", "TRANSITIONS", "IDLE",
        "What the fence of a host lets through: never two at work on a resource, nor on one and a relative.",
    ),
    Machine(
        "Attempt at its worker", "gspc_trio.components.worker.phases", "TRANSITIONS", "WAITING",
        "The phases of a worker, at most one attempt in each of the three in the middle.",
    ),
    Machine(
        "Compute", "gspc_trio.components.worker.shell.compute_channel", "TRANSITIONS", "RUNNING",
        "A compute process of one worker for one job, or a thread that stands for one.",
    ),
    Machine(
        "Launcher", "gspc_trio.components.launcher.states", "TRANSITIONS", "IDLE",
        "One study: a server job, and the client jobs that it asks for.",
    ),
    Machine(
        "Client of a study", "gspc_trio.components.launcher.events", "CLIENT_TRANSITIONS", "POSTPONED",
        "A program that the server of a study has asked for, alone in its job or in a group.",
    ),
    Machine(
        "Session", "gspc_trio.protocol.session", "TRANSITIONS", "NEW",
        "One side of a connection. Nothing but the handshake is read before `open`.",
    ),
)  # fmt: skip


def load(machine: Machine) -> dict[Enum, frozenset[Enum]]:
    """Return the machine's table."""
    table: dict[Enum, frozenset[Enum]] = getattr(importlib.import_module(machine.module), machine.table)
    return table


def meanings(states: type[Enum]) -> dict[str, str]:
    """Return what each member of an enumeration means: the string below it in the source."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(states))).body
    assert isinstance(definition, ast.ClassDef)
    body = definition.body
    found = {}
    for member, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(member, ast.Assign) and isinstance(member.targets[0], ast.Name):
            text = ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(str(below.value.value).split())
            found[member.targets[0].id] = text
    return found


def word(state: Enum) -> str:
    """Return a state's name as people read it."""
    return state.name.lower().replace("_", " ")


def diagram(machine: Machine) -> str:
    """Return the section of one machine: a diagram, and what its states mean."""
    table = load(machine)
    order = list(table)
    first = type(order[0])[machine.first]
    lines = [f"## {machine.title}", "", machine.text, "", f"From `{machine.module}.{machine.table}`.", ""]
    lines += ["```mermaid", "stateDiagram-v2"]
    lines += [f"    {state.name} : {word(state)}" for state in order]
    lines.append(f"    [*] --> {first.name}")
    for state in order:
        followers = sorted(table[state], key=order.index)
        lines += [f"    {state.name} --> {follower.name}" for follower in followers]
        if not followers:
            lines.append(f"    {state.name} --> [*]")
    lines += ["```", ""]
    told = {state: text for state in order if (text := meanings(type(state)).get(state.name, ""))}
    if told:
        lines += ["| state | meaning |", "|---|---|"]
        lines += [f"| {word(state)} | {text} |" for state, text in told.items()]
        lines.append("")
    return "\n".join(lines)


def state_diagrams() -> str:
    """Return the page of state diagrams."""
    head = (
        "# State diagrams\n\n"
        "This page is generated by `make docs` from the tables that the machines themselves hold to: each\n"
        "asserts that a change of state is in its table, or its tests compare all that they see with it.\n"
        "What the machines are is told in [concepts](concepts.md).\n\n"
    )
    return head + "\n".join(map(diagram, MACHINES))


# Commands ---------------------------------------------------------------------------------------------------


def commands_of(app: App) -> Iterator[tuple[str, App]]:
    """Return the commands of an app with their names, also those of a group; not those that are options."""
    for name in app:
        if name.startswith("-"):
            continue
        command = app[name]
        if command.default_command is not None:
            yield name, command
        else:
            yield from ((f"{name} {inner}", one) for inner, one in commands_of(command))


def wrapped(text: str, indent: str) -> list[str]:
    """Return a text as lines that are indented and not too long."""
    return textwrap.wrap(" ".join(text.split()), WIDTH, initial_indent=indent, subsequent_indent=indent)


def value_name(hint: Any) -> str:
    """Return what to call the value of an option: PATH, TEXT, NUMBER; "" for a flag."""
    text = str(hint)
    if "Path" in text:
        return "PATH"
    if hint is bool:
        return ""
    return "NUMBER" if hint in (int, float) else "TEXT"


def command_help(app_name: str, name: str, command: App) -> str:
    """Return the help of one command as plain text."""
    function = command.default_command
    arguments = list(command.assemble_argument_collection(parse_docstring=True))
    positional = [argument for argument in arguments if argument.index is not None]
    options = [argument for argument in arguments if argument.index is None and argument.show]
    usage = [app_name, name] if name else [app_name]
    for argument in positional:
        usage.append(argument.names[0].lstrip("-").upper() + (" ..." if "list" in str(argument.hint) else ""))
    lines = [" ".join([*usage, "[OPTIONS]" if options else ""]).rstrip(), ""]
    lines += [*wrapped((inspect.getdoc(function) or "").split("\n\n")[0], "  "), ""]
    for argument in positional:
        lines.append(f"  {argument.names[0].lstrip('-').upper()}")
        lines += wrapped(argument.parameter.help or "", "      ")
    for argument in options:
        flag = f"{', '.join(argument.names)} {value_name(argument.hint)}".rstrip()
        default = argument.field_info.default
        shown = (
            f" Default: {default}." if type(default) in (int, float, str) and default not in (0, "") else ""
        )
        lines.append(f"  {flag}")
        lines += wrapped((argument.parameter.help or "") + shown, "      ")
    return "\n".join(lines).rstrip()


def app_help(module: str) -> str:
    """Return the help of all commands of an app as Markdown, "" if the module has no app."""
    loaded = importlib.import_module(module)
    others = getattr(loaded, "add_commands", None)  # that of other modules, loaded in any order
    if others is not None:
        others()
    app = getattr(loaded, "app", None)
    if app is None:
        return ""
    name = app.name[0]
    parts = [f"## {name}", "", app.help, ""]
    if app.default_command is not None:
        parts += ["```text", command_help(name, "", app), "```", ""]
    found = list(commands_of(app))
    for title, command in sorted(found, key=lambda one: one[0]) if others else found:
        parts += [f"### {name} {title}", "", "```text", command_help(name, title, command), "```", ""]
    return "\n".join(parts)


def commands() -> str:
    """Return the page of commands: what is written there by hand, and the help of each."""
    by_hand = (DOCS / "commands.md").read_text(encoding="utf-8").partition(MARKER)[0]
    parts = [by_hand + MARKER + "\n", *filter(None, map(app_help, APPS))]
    return "\n".join(parts)


# Tree of packages -------------------------------------------------------------------------------------------

TREE_BEGIN, TREE_END = "<!-- The tree is generated: make docs -->", "<!-- End of the tree -->"
READING_ORDER = (
    "core",
    "protocol",
    "records",
    "workflow",
    "policies",
    "components",
    "iml",
    "compute",
    "nursery",
)
"""These come first, then the others by name; within each by name."""


def summary(package: Path) -> str:
    """Return the first line of a package's docstring."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.split("\n")[0].replace("``", "").rstrip(".")


def tree(package: Path, depth: int = 0) -> Iterator[str]:
    """Return a line for each package below one."""
    below = [path.parent for path in package.glob("*/__init__.py")]
    order = {name: number for number, name in enumerate(READING_ORDER if depth == 0 else ())}
    for one in sorted(below, key=lambda path: (order.get(path.name, len(order)), path.name)):
        name = "  " * (depth + 1) + one.name + "/"
        yield f"{name:21} {summary(one)}"
        yield from tree(one, depth + 1)


def concepts() -> str:
    """Return the page of concepts: what is written there by hand, around the tree of packages."""
    text = (DOCS / "concepts.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(TREE_BEGIN)
    after = rest.partition(TREE_END)[2]
    lines = "\n".join(["```text", "gspc_trio/", *tree(DOCS.parent / "gspc_trio"), "```"])
    return f"{before}{TREE_BEGIN}\n\n{lines}\n\n{TREE_END}{after}"


# Options of studies -----------------------------------------------------------------------------------------

OPTIONS_BEGIN, OPTIONS_END = "<!-- The options are generated: make docs -->", "<!-- End of the options -->"
SERVER_BEGIN = "```shell\n"


def launcher() -> str:
    """Return the page of studies: what is written there by hand, a server in shell, and all options."""
    from gspc_trio.components.launcher.options import option_table

    text = (DOCS / "launcher.md").read_text(encoding="utf-8")
    before, _, rest = text.partition(SERVER_BEGIN)
    script = (ROOT / "examples" / "study" / "server.sh").read_text(encoding="utf-8")
    text = f"{before}{SERVER_BEGIN}{script}```{rest.partition('```')[2]}"
    before, _, rest = text.partition(OPTIONS_BEGIN)
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for row in option_table():
        default = "" if row.default is None else f"`{json.dumps(row.default)}`"
        choices = f": {', '.join(f'`{choice}`' for choice in row.choices)}" if row.choices else ""
        rows.append(f"| `{row.name}` | {row.type} | {default} | {row.meaning}{choices} |")
    table = "\n".join(rows)
    return f"{before}{OPTIONS_BEGIN}\n\n{table}\n\n{OPTIONS_END}{rest.partition(OPTIONS_END)[2]}"


# Requirements -----------------------------------------------------------------------------------------------

ROOT = DOCS.parent
REQUIREMENT = re.compile(r"\b([A-Z]{2,3})-(\d+)\b(?: to \1-(\d+)\b)?")
"""An id, or a range of ids such as RM-1 to RM-5."""

REQUIREMENTS_HEAD = """# Requirements

This page is generated by `make docs`: from `requirements.toml`, which says what each id means, and from the
modules and tests that name it. What no module names is not built, at least not in whole.
"""


def requirements_named(text: str) -> set[str]:
    """Return the ids that a text names, those within ranges too."""
    return {
        f"{family}-{number}"
        for family, first, last in REQUIREMENT.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def named_in(folder: Path) -> dict[str, list[str]]:
    """Return id -> paths below a folder of the Python files that name it, without those of simulations."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        if path.is_relative_to(ROOT / "gspc_trio" / "testing"):
            continue
        for name in requirements_named(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append(path.relative_to(folder).as_posix())
    return found


def told_requirements() -> dict[str, dict[str, str]]:
    """Return group -> id -> meaning."""
    told: dict[str, dict[str, str]] = tomllib.loads((DOCS / "requirements.toml").read_text(encoding="utf-8"))
    return told


HEADINGS = {
    "run-time-system": "Run-time system",
    "rif": "RIF",
    "resource-manager": "Resource manager",
    "workflow-engine": "Workflow engine",
    "memory-layer": "Memory layer",
    "aspide": "Tasks, data and nodes",
}


def requirements() -> str:
    """Return the page of requirements: what each means, and where it is built and tested."""
    built, tested = named_in(ROOT / "gspc_trio"), named_in(ROOT / "tests")
    lines, missing = [REQUIREMENTS_HEAD], ["## Not built", "", "| id | what it means |", "|---|---|"]
    for group, told in told_requirements().items():
        missing += [f"| {name} | {meaning} |" for name, meaning in told.items() if name not in built]
        rows = [name for name in told if name in built]
        if rows:
            lines += [f"## {HEADINGS.get(group, group.capitalize())}", ""]
            lines += [
                "| id | what it means | built in `gspc_trio` | tested in `tests` |",
                "|---|---|---|---|",
            ]
        for name in rows:
            where = [", ".join(f"`{path}`" for path in found.get(name, ())) for found in (built, tested)]
            lines.append(f"| {name} | {told[name]} | {where[0]} | {where[1]} |")
        lines += [""] if rows else []
    return "\n".join([*lines, *missing]) + "\n"


def api() -> str:
    """Return the page of public names."""
    if str(DOCS) not in sys.path:  # when this file itself was loaded by its path
        sys.path.insert(0, str(DOCS))
    page: str = importlib.import_module("api_page").api()
    return page


PAGES = {
    "api.md": api,
    "state-diagrams.md": state_diagrams,
    "commands.md": commands,
    "concepts.md": concepts,
    "launcher.md": launcher,
    "requirements.md": requirements,
}
"""Name of a page -> what writes it."""


def main() -> None:
    """Write all pages."""
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
        print(f"docs/{name}", file=sys.stderr)


if __name__ == "__main__":
    main()
