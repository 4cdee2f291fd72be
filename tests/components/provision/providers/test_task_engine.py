"""Dask and Ray as batch systems: the commands of our program, and what it says."""

from __future__ import annotations

import msgspec
import pytest

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    CommandResult,
    Provider,
    QueryFailed,
)
from gspc_trio.components.provision.find import find_provider
from gspc_trio.components.provision.providers.task_engine import REFUSED, EngineRequest

ENGINES = ["dask", "ray"]


def engine_of(name: str) -> Provider:
    return find_provider(name, address=f"{name}://scheduler:8786")


@pytest.mark.parametrize("name", ENGINES)
def test_the_cluster_is_told_on_standard_input_what_is_secret(name: str):
    engine = engine_of(name)
    request = BatchRequest("gspc-1", 2, nodes=3, script="run", secret="ticket", folder="/tmp/x")
    command = engine.submit(request)
    assert command[-3:] == (
        f"gspc_trio.components.provision.shell.{name}_jobs",
        "submit",
        f"{name}://scheduler:8786",
    )
    assert "ticket" not in " ".join(command)
    told = msgspec.json.decode(engine.submit_input(request), type=EngineRequest)
    assert told == EngineRequest("gspc-1", 3, 2, "run", "ticket")
    assert engine.query("gspc-1")[-3:] == ("list", f"{name}://scheduler:8786", "gspc-1")
    assert engine.cancel("", "gspc-1")[-1] == "gspc-1"


def test_only_what_was_refused_is_refused():
    dask = engine_of("dask")
    assert dask.submitted(CommandResult(0, "gspc-1\n", "")) == "gspc-1"
    assert dask.submitted(CommandResult(1, "", "Traceback")) is None
    with pytest.raises(BadRequest, match="dask: it has 2 worker hosts, not 3"):
        dask.submitted(CommandResult(REFUSED, "", "it has 2 worker hosts, not 3\n"))


def test_what_the_program_lists():
    dask = engine_of("dask")
    line = '{"name":"gspc-1","state":"queued","reason":"no thread"}\n'
    told = dask.told(CommandResult(0, line, ""))
    assert told == (BatchJob("gspc-1", "gspc-1", BatchState.QUEUED, "no thread"),)
    assert dask.sized(CommandResult(0, '{"nodes":3,"cores":8}\n', "")) == (3, 8)
    for ask in (dask.told, dask.sized):
        for result in (CommandResult(1, "", "it does not answer"), CommandResult(0, "what?\n", "")):
            with pytest.raises(QueryFailed):
                ask(result)


@pytest.mark.parametrize(
    ("address", "more", "why"),
    [
        ("", {}, "dask needs the address of its cluster, such as dask://HOST:PORT"),
        ("-oops", {}, "dask has no address '-oops': write for example dask://HOST:PORT"),
        ("dask://h:1", {"queue": "q"}, "dask has no queues, no accounts, and no arguments"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(address: str, more: dict[str, str], why: str):
    with pytest.raises(BadRequest) as caught:
        find_provider("dask", address=address).submit(BatchRequest("gspc-1", 1, **more))
    assert str(caught.value) == why
