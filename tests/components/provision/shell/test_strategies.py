"""The strategies: what they start, what they say of it, what they leave behind (RTS-1)."""

from __future__ import annotations

import base64
import sys

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.embed import EmbeddedStrategy
from gspc_trio.components.provision.shell.strategies import LocalStrategy, describe_exit, find_strategies
from gspc_trio.components.provision.strategy import RifOrder, StrategyError
from gspc_trio.components.rif.messages import RifProcessOrder
from gspc_trio.components.rts.messages import BootstrapReport
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.scopes.spawn import ProcessStartError
from gspc_trio.protocol.plain import from_json
from gspc_trio.testing.simulated.backend import by_task, open_simulated_backend
from tests.processes import HANG_S, is_alive
from tests.support import until, until_ended

TOKEN = bytes(range(32))


def order(*addresses: str) -> RifOrder:
    return RifOrder("r1", 2, "anna", 3, {"directory": "/red"}, addresses or ("ws://127.0.0.1:9",), TOKEN)


def python(program: str) -> LocalStrategy:
    return LocalStrategy((sys.executable, "-c", "import os; os.dup2(1, 2)\n" + program))


def discover(rif_id: str, cores: int) -> tuple[Resource, ...]:
    return tuple(Resource(f"{rif_id}.core{number}", "core") for number in range(cores or 4))


async def test_an_embedded_rif_comes_up_with_what_was_discovered_and_goes_when_told(autojump_clock):
    del autojump_clock
    network = Network(wire_codec)
    async with (
        open_simulated_backend(by_task({})) as backend,
        open_rts_service(
            network,
            listen=("memory:rts",),
            strategies={"embedded": EmbeddedStrategy(network, backend, discover)},
        ) as service,
    ):
        report = await service.bootstrap(("anna", "bert"), "embedded", 2)
        assert report == BootstrapReport({"anna": "r1", "bert": "r2"}, {})
        assert service.host_to_resource() == {
            "anna": ("r1.core0", "r1.core1"),
            "bert": ("r2.core0", "r2.core1"),
        }
        assert await service.teardown(("r1",)) == ("r1",)
        assert service.host_to_resource() == {"bert": ("r2.core0", "r2.core1")}


async def test_an_embedded_rif_needs_an_rts_in_memory():
    async with open_simulated_backend(by_task({})) as backend:
        strategy = EmbeddedStrategy(Network(wire_codec), backend, discover)
        with pytest.raises(StrategyError, match=r"memory:\.\.\. of the RTS, which listens on ws://a:1 only"):
            await strategy.run(order("ws://a:1"))


async def test_an_option_that_nobody_knows_is_refused() -> None:
    strange = replace(order(), options={"color": "red"})
    with pytest.raises(
        StrategyError, match="no option 'color'; there are: allow_files, directory, features, file_operations"
    ):
        await LocalStrategy(("/nonexistent",)).run(strange)


@pytest.mark.process
async def test_a_local_rif_gets_its_order_with_the_token_on_standard_input_and_nowhere_else():
    told = order()
    reason = await python("import sys\nprint(sys.stdin.readline())\nprint(sys.argv, dict(os.environ))\n").run(
        told
    )
    assert reason == "its process ended with exit status 0"
    line, surroundings = told.said
    known = ("r1", 2, "anna", 3, {"directory": "/red"})
    assert from_json(line, RifProcessOrder) == RifProcessOrder("ws://127.0.0.1:9", TOKEN, *known)
    assert base64.b64encode(TOKEN).decode() not in surroundings
    assert "token" not in repr(order())


@pytest.mark.process
async def test_the_last_words_of_a_local_rif_on_standard_error_are_kept():
    told = order()
    reason = await python("for n in range(20): print(n, flush=True)\nimport no_such_thing").run(told)
    assert reason == "its process ended with exit status 1"
    assert told.said[-1] == "ModuleNotFoundError: No module named 'no_such_thing'"
    assert len(told.said) == 8


@pytest.mark.process
async def test_a_local_rif_that_leaves_a_child_with_its_output_does_not_keep_the_strategy():
    told = order()
    program = "import subprocess, sys\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    with trio.fail_after(HANG_S):
        await python(program).run(told)
    await until_ended(int(told.said[0]))  # it was killed with its group


@pytest.mark.process
async def test_cancelling_ends_a_local_rif_that_ignores_the_request_to_end():
    told = order()
    program = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\ntime.sleep(600)"
    )
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(python(program).run, told)
            await until(lambda: told.said)
            nursery.cancel_scope.cancel()
    assert not is_alive(int(told.said[0]))


async def test_a_program_that_is_not_there_is_one_clear_line():
    with pytest.raises(ProcessStartError, match="cannot start /no/such/python: No such file"):
        await LocalStrategy(("/no/such/python",)).run(order())


async def test_a_local_rif_needs_an_rts_that_can_be_reached_from_outside():
    with pytest.raises(StrategyError, match=r"ws:\.\.\. of the RTS, which listens on memory:rts only"):
        await LocalStrategy().run(order("memory:rts"))


@pytest.mark.process
async def test_a_bootstrap_tells_the_last_words_of_a_process_that_failed():
    network = Network(wire_codec, TOKEN)
    strategies = {"local": python("raise OSError('no space left')")}
    async with open_rts_service(network, listen=("ws://127.0.0.1:0",), strategies=strategies) as service:
        report = await service.bootstrap(("anna",))
    assert report.started == {}
    assert report.failed["anna"].startswith("its process ended with exit status 1; it said: ")
    assert report.failed["anna"].endswith("OSError: no space left")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (3, "its process ended with exit status 3"),
        (-9, "its process was ended by SIGKILL"),
        (-63, "its process was ended by signal 63"),
    ],
)
def test_the_end_of_a_process_in_words(status, text):
    assert describe_exit(status) == text


def test_strategies_of_installed_packages_are_found_and_broken_ones_left_out(tmp_path, monkeypatch, caplog):
    (tmp_path / "fog.py").write_text("class Fog:\n    async def run(self, order):\n        return ''\n")
    info = tmp_path / "fog-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fog\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gspc_trio.strategies]\nfog = fog:Fog\nmist = fog:Mist\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_strategies()
    assert sorted(found) == ["fog", "local"]
    assert type(found["fog"]).__name__ == "Fog"
    assert "strategy mist of fog:Mist cannot be used" in caplog.text
