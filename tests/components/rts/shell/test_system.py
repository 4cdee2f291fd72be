"""A run-time system with settings: the command line and ``open_rts`` take the same ones."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.cli import jobserver
from gspc_trio.cli import rts as commands
from gspc_trio.components.embed import open_rts
from gspc_trio.components.provision.find import BUILT_IN
from gspc_trio.components.provision.site_settings import sites_of
from gspc_trio.components.provision.strategy import RifOrder, StrategyError
from gspc_trio.components.rts.shell.peers import RtsError
from gspc_trio.components.rts.shell.system import BATCH_STRATEGIES, BatchByHand, RtsOptions, RtsSettings
from gspc_trio.protocol.listening import BadSetting

OF_THE_COMMAND = {"metrics", "connection_file", "verbose", "log_json"}
"""Options of ``gspc-rts start`` that are about itself."""

OF_THE_PROGRAM = {"host", "connection_file", "publish", "data_bytes", "strategies", "settings"}
"""Arguments of ``open_rts`` that are about the program which calls it, and those named elsewhere."""


def test_a_run_time_system_has_the_same_settings_wherever_it_is_started() -> None:
    settings = set(RtsSettings.__struct_fields__)
    program = set(inspect.signature(open_rts).parameters) - OF_THE_PROGRAM
    assert program | set(RtsOptions.__annotations__) == settings
    assert program & set(RtsOptions.__annotations__) == set()
    command = set(inspect.signature(commands.start).parameters) - OF_THE_COMMAND
    named = {"memory": "memory_bytes", "spill": "spill_bytes", "settings": "options"}
    assert {named.get(name, name) for name in command} == settings


def test_the_command_has_the_same_defaults() -> None:
    usual = RtsSettings()
    for name in (
        "cores",
        "listen",
        "placement",
        "port",
        "state",
        "strategy",
        "tls",
        "directory",
        "spill_directory",
    ):
        assert inspect.signature(commands.start).parameters[name].default == getattr(usual, name), name


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"placement": "compcat"},
            "placement='compcat': there is no such placement (did you mean 'compact'?); there are: fifo",
        ),
        (
            {"options": {"feature": "ssd"}},
            "set='feature=ssd': there is no such option (did you mean 'features'?); there are: allow_files,",
        ),
        ({"directory": "/no/such"}, "directory='/no/such': there is no such directory"),
        ({"listen": "0.0.0.0"}, "listen='0.0.0.0': this stands for many addresses"),
        ({"listen": "10.0.0.1"}, "listen='10.0.0.1': others can reach it, and nothing would be encrypted"),
        ({"spill_bytes": -1}, "spill_bytes=-1: this is no number of bytes, 0 or more"),
        ({"data_bytes": "4GiB"}, "data_bytes='4GiB': this is no number of bytes, 0 or more"),
        (
            {"strategy": "slrum"},
            "strategy='slrum': there is no such strategy; there are: dask, embedded, fog",
        ),
        ({"tls": True}, "tls=True: certificates are kept beside the file to publish, or in the state"),
    ],
)
async def test_what_cannot_be_set_is_said(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSetting) as caught:
        async with open_rts(cores=1, strategies={"fog": Fog()}, **settings):
            raise AssertionError("it came up")
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("settled", [{"placement": "fair"}, {"cores": 2}, {"publish": "rts.json"}])
async def test_what_a_running_one_has_settled_is_refused(settled: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=f"{min(settled)} is settled by the run-time system that runs already"
    ):
        async with open_rts(connection_file="nowhere.json", **settled):
            raise AssertionError("it came up")


async def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(TypeError, match="open_rts has no setting 'place'"):
        async with open_rts(place="fair"):  # type: ignore[call-arg]
            raise AssertionError("it came up")


def test_a_file_of_sites_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text('[hpc]\nprovider = "slurm"\nmax_time = "2h"\n')
    settings = RtsSettings(sites=path).checked()
    path.unlink()
    assert settings.sites == sites_of({"hpc": {"provider": "slurm", "max_time": "2h"}})
    assert settings.checked() == settings


class Fog:
    """A strategy of a program's own, whose hosts do not come up."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def run(self, order: RifOrder) -> str:
        self.asked.append((order.host, order.options))
        assert order.rts_address("ws:")
        raise StrategyError("it is foggy")


async def test_a_strategy_of_the_program_is_told_all_of_its_hosts(tmp_path: Path) -> None:
    fog = Fog()
    with pytest.raises(RtsError, match="no RIF came up: a: it is foggy; b: it is foggy"):
        async with open_rts(
            hosts=["a", "b"],
            strategy="fog",
            strategies={"fog": fog},
            options={"thick": "very"},
            directory=str(tmp_path),
            memory_bytes=4096,
        ):
            raise AssertionError("it came up")
    options = {"directory": str(tmp_path), "memory": "4096", "thick": "very"}
    assert sorted(fog.asked) == [("a", options), ("b", options)]


def test_the_commands_take_the_address_of_a_cluster_in_place_of_a_file() -> None:
    address = "dask://host:1"
    for app, words in ((commands.app, ["start"]), (jobserver.app, ["run", __file__])):
        _, bound, _ = app.parse_args([*words, "--sites", address])
        given = bound.arguments["own"].sites if "own" in bound.arguments else bound.arguments["sites"]
        wanted = RtsSettings(sites=given).checked().sites
        assert wanted == sites_of({"dask": {"provider": "dask", "address": address}})


def test_each_batch_system_can_be_asked_by_hand_too() -> None:
    assert set(BATCH_STRATEGIES.values()) == set(BUILT_IN)


async def test_what_starts_blocks_by_hand_is_told_where_the_batch_system_is() -> None:
    order = RifOrder("r1", 1, "h", 1, {}, ("wss://192.0.2.1:1",), b"", block="h")
    for options, why in [
        ({"via": "login"}, "via 'login': commands can run on another host by ssh: write ssh:HOST"),
        ({"address": "tcp://x:1"}, "there is no option 'address'; there are: account"),
        ({"feature": "ssd"}, r"there is no option 'feature' \(did you mean 'features'\?\); there are"),
    ]:
        with pytest.raises(StrategyError, match=why):
            await BatchByHand("slurm").run(replace(order, options=options))
