"""The generated pages are those that the code makes now."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gspc_trio import JobSettings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def generator() -> ModuleType:
    """Return docs/generate.py as a module."""
    name = "gspc_docs_generate"
    if name not in sys.modules:
        specification = importlib.util.spec_from_file_location(name, DOCS / "generate.py")
        assert specification is not None
        assert specification.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    return sys.modules[name]


def api_page() -> ModuleType:
    """Return docs/api_page.py as a module, which makes the page of public names."""
    if str(DOCS) not in sys.path:
        sys.path.insert(0, str(DOCS))
    return importlib.import_module("api_page")


@pytest.mark.parametrize("page", generator().PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    committed = (DOCS / page).read_text(encoding="utf-8")
    assert committed == generator().PAGES[page](), f"docs/{page} is out of date: make docs"


def test_every_requirement_that_is_named_is_explained() -> None:
    made = generator()
    told = {name for group in made.told_requirements().values() for name in group}
    families = {name.partition("-")[0] for name in told}
    named = {*made.named_in(ROOT / "gspc_trio"), *made.named_in(ROOT / "tests")}
    for page in DOCS.glob("*.md"):
        named |= made.requirements_named(page.read_text(encoding="utf-8"))
    assert {name for name in named if name.partition("-")[0] in families} <= told
    assert made.requirements_named(f"RM-{1} to RM-{3}, RM-{7}") == {f"RM-{n}" for n in (1, 2, 3, 7)}


def test_every_table_of_transitions_has_a_diagram() -> None:
    shown = {(machine.module, machine.table) for machine in generator().MACHINES}
    there = set()
    for path in (ROOT / "gspc_trio").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for table in re.findall(r"^(\w*TRANSITIONS)\b", path.read_text(encoding="utf-8"), re.MULTILINE):
            there.add((module, table))
    assert there == shown


@pytest.mark.parametrize("machine", generator().MACHINES, ids=lambda machine: machine.title)
def test_a_table_makes_sense(machine: Any) -> None:
    table: dict[Enum, frozenset[Enum]] = generator().load(machine)
    states = type(next(iter(table)))
    assert all(type(state) is states for followers in table.values() for state in followers)
    assert all(state not in followers for state, followers in table.items())
    reached = {states[machine.first]}
    while more := {follower for state in reached for follower in table[state]} - reached:
        reached |= more
    assert reached == set(table), "a state that cannot be reached"


def test_every_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for more in project["optional-dependencies"].values() for one in more),
    ]
    told = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    for requirement in wanted:
        name = re.split(r"[<>=!~ \[;]", requirement)[0]
        assert f"[{name}](" in told or f" {name}" in told, (
            f"docs/dependencies.md does not say what {name} is for"
        )


def test_every_setting_of_a_job_is_told_with_its_default() -> None:
    table = (DOCS / "embedding.md").read_text(encoding="utf-8").partition("| `JobSettings(...)` |")[2]
    told = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", table.partition("\n\n")[0], re.MULTILINE))
    defaults = {name: repr(getattr(JobSettings(), name)) for name in JobSettings.__struct_fields__}
    assert told == {name: default.replace("'", '"') for name, default in defaults.items()}


def test_a_field_without_explanation_is_noticed() -> None:
    page = api_page()
    with pytest.raises(LookupError, match=r"Thing does not explain size"):
        page.table("field", [page.Entry("size", "int", "0")], {}, "Thing")


def test_methods_that_are_hidden_from_the_page_of_names_exist() -> None:
    page = api_page()
    for name, hidden in page.API_INTERNAL.items():
        home = next((path.rpartition(".")[0] for paths in page.API_MORE.values() for path in paths
                     if path.endswith(f".{name}")), "gspc_trio")  # fmt: skip
        members = inspect.getsource(getattr(importlib.import_module(home), name))
        assert [one for one in hidden if not re.search(rf"\b{one}\b", members)] == []


def test_every_environment_variable_is_told_on_the_page_of_commands() -> None:
    told = set(re.findall(r"^\| `(GSPC_\w+)` \|", (DOCS / "commands.md").read_text(), re.MULTILINE))
    product = (ROOT / "gspc_trio").rglob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in product if "testing" not in path.parts)
    assert told == set(re.findall(r'"(GSPC_[A-Z_]+)"', code))
