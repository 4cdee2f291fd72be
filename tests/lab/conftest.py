"""Hosts for the tests of this folder; without them they are skipped, saying what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import World, open_world
from tests.lab.support import Lab, missing, open_lab

ASKED = "GSPC_LAB"


@pytest.fixture(scope="session")
def all_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if not os.environ.get(ASKED):
        pytest.skip("hosts in namespaces are made by: make lab")
    why = missing()
    if why:
        pytest.skip(why)
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(all_hosts: Lab) -> Iterator[Lab]:
    """Three hosts whose links are well; they are so again afterwards."""
    yield all_hosts
    for host in all_hosts.hosts:
        host.link()


@pytest.fixture
def world(lab: Lab, tmp_path: Path) -> Iterator[World]:
    """A place to run commands in, here and on the hosts, in which nothing of theirs may be left."""
    with open_world(tmp_path, forks=False) as place:
        yield place
        for host in lab.hosts:
            host.link()
