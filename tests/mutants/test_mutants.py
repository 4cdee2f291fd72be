"""The table of mutants is true of the code, and what nobody finds is explained."""

from __future__ import annotations

import json
from functools import cache
from types import CodeType

import pytest

from tests.mutants.mutant import PACKAGE, Mutant, functions_of
from tests.mutants.report import FOUND, PAGE, is_found, page
from tests.mutants.table import MUTANTS, nearest_tests

RESULTS = json.loads(FOUND.read_text())
BY_NAME = {one.name: one for one in MUTANTS}

FILES = sorted({one.file for one in MUTANTS})


@cache
def codes_of_all_files() -> set[CodeType]:
    """Look once through all objects of this process, for all files."""
    return {function.__code__ for function in functions_of(PACKAGE / file for file in FILES)}


@pytest.mark.parametrize("file", FILES)
def test_each_mutant_of_a_file_changes_a_function_of_it(file: str):
    for one in MUTANTS:
        if one.file == file:
            changed = codes_of_all_files() & one.changes().keys()
            assert changed, f"nothing has a function that {one.name!r} changes"
            assert nearest_tests(one), f"no tests are near {file}"


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        ("RETRY_S = 0.3", "changes what runs when"),
        ("RETRY_S = 0.2 ", "changes no function"),
        ("(", "is no Python"),
    ],
)
def test_what_is_no_fault_of_a_function_is_refused(new: str, problem: str):
    one = Mutant("m", "", "components/rts/shell/contact.py", "RETRY_S = 0.2", new)
    with pytest.raises(ValueError, match=problem):
        one.apply()


def test_what_is_not_there_once_is_refused():
    with pytest.raises(ValueError, match="not once"):
        Mutant("m", "", "components/rts/shell/contact.py", "RETRY_S", "").apply()


def test_each_name_is_there_once_and_each_mutant_was_looked_for():
    assert len(BY_NAME) == len(MUTANTS) >= 100
    assert set(RESULTS) == set(BY_NAME), "run make mutants"


def test_what_nobody_finds_is_explained():
    judged = [one for one in MUTANTS if "test" in RESULTS[one.name]]
    unexplained = [one.name for one in judged if not is_found(RESULTS[one.name]) and not one.why]
    assert not unexplained


def test_the_page_says_what_was_found():
    assert PAGE.read_text() == page(MUTANTS, RESULTS), "run make mutants"
