"""Memory servers in processes of their own: memory is shared, and nothing is left whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from gspc_trio.components.embed import open_rts
from gspc_trio.iml import local
from gspc_trio.iml.errors import DataLost, ImlError
from gspc_trio.iml.layout import Layout, replicated, striped
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.shell.layer import open_iml
from gspc_trio.nursery.connections.connection_file import read_connection_file
from gspc_trio.protocol.limits import MIB
from gspc_trio.protocol.listening import BadSetting
from tests.iml.shell.servers import HANG_S, MARK, Servers, open_servers

pytestmark = pytest.mark.process

BYTES = bytes(range(256)) * 8192  # 2 MiB


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with open_servers(tmp_path) as running:
        yield running


def processes_with_segments(servers: Servers) -> list[int]:
    """Return this process and those of the test's servers, as far as they have a segment open."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                ours = f"{MARK}={servers.mark}".encode() in (folder / "environ").read_bytes()
                links = [os.readlink(link) for link in (folder / "fd").iterdir()]
                if (ours or int(folder.name) == os.getpid()) and any("memfd:gspc-iml" in it for it in links):
                    found.append(int(folder.name))
    return sorted(found)


async def test_data_is_shared_with_and_between_servers(servers: Servers) -> None:
    for host in "abc":
        servers.start(host)
    async with open_iml(job="j", host="a", connection_file=servers.file) as iml:
        for layout in (Layout(("a",)), Layout(("b",)), striped(100_000), replicated(3)):
            data = await iml.alloc(len(BYTES), BYTES, layout=layout)
            assert await iml.get(data) == BYTES
            await iml.put(data.range(90_000, 20_000), b"x" * 20_000)
            assert (
                await iml.get(data.range(89_999, 20_002))
                == BYTES[89_999:90_000] + b"x" * 20_000 + BYTES[110_000:110_001]
            )
            if not layout.block_bytes:
                async with iml.map(data) as view:
                    assert view.readonly
                    assert bytes(view[90_000:110_000]) == b"x" * 20_000
        assert iml.bandwidth_of("b") > 0


async def test_a_process_without_trio_maps_and_makes_data(servers: Servers) -> None:
    servers.start("a")
    servers.start("b")
    async with open_iml(job="j", host="b", connection_file=servers.file) as iml:
        far = await iml.alloc(len(BYTES), BYTES, layout=Layout(("b",)))
        address = next(entry.local_address for entry in await iml.servers() if entry.host == "a")
        client = await trio.to_thread.run_sync(LocalClient, address, "j")
        try:
            mapped = await trio.to_thread.run_sync(client.map, far.data_id)
            assert mapped[:] == BYTES
            del mapped
            client.release(far.data_id)
            pieces = [memoryview(b"one"), memoryview(BYTES)]
            made = await trio.to_thread.run_sync(client.write, pieces)
            assert await iml.get(made) == b"one" + BYTES
            assert await iml.data_location(made) == ("a",)
            with pytest.raises(ImlError, match="has no room"):
                await trio.to_thread.run_sync(client.write, [memoryview(bytearray(65 << 20))])
            with pytest.raises(ImlError, match="there is no data d99"):
                await trio.to_thread.run_sync(client.map, "d99")
        finally:
            client.close()


async def test_a_killed_server_takes_only_its_own_data(servers: Servers) -> None:
    for host in "abc":
        servers.start(host)
    async with open_iml(job="j", host="a", connection_file=servers.file) as iml:
        safe = await iml.alloc(len(BYTES), BYTES, layout=replicated(2, ("b", "c")))
        gone = await iml.alloc(len(BYTES), BYTES, layout=Layout(("b",)))
        servers.kill("b")
        with trio.fail_after(HANG_S):
            assert await iml.get(safe) == BYTES
            while gone.data_id not in iml.lost:
                await trio.lowlevel.checkpoint()
            with pytest.raises(DataLost, match="host b is gone"):
                await iml.get(gone)


def test_a_killed_client_leaves_nothing(servers: Servers) -> None:
    servers.start("a")
    code = (
        "import sys, trio\n"
        "from gspc_trio.iml.shell.layer import open_iml\n"
        "async def main():\n"
        "    async with open_iml(job='j', host='a', connection_file=sys.argv[1]) as iml:\n"
        "        data = await iml.alloc(1 << 20, bytes(1 << 20))\n"
        "        async with iml.map(data):\n"
        "            print('ready', flush=True)\n"
        "            await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", code, str(servers.file)], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    assert len(json.loads(servers.run("status", "--json").stdout)["data"]) == 1
    client.kill()
    client.communicate(timeout=HANG_S)
    for _ in range(200):
        status = json.loads(servers.run("status", "--json").stdout)
        if not status["data"]:
            break
    assert status["data"] == []
    assert status["servers"][0]["held_bytes"] == 0


async def test_when_all_are_killed_nothing_is_left(servers: Servers) -> None:
    for host in "abc":
        servers.start(host)
    async with open_iml(job="j", host="a", connection_file=servers.file) as iml:
        await iml.alloc(len(BYTES), BYTES, layout=replicated(3))
        assert processes_with_segments(servers) == sorted(servers.pids)
        for process in servers.processes.values():
            process.send_signal(signal.SIGKILL)
        servers.end()
        servers.processes.clear()
        assert processes_with_segments(servers) == []
        with trio.fail_after(HANG_S):
            await iml.wait_ended()


def test_the_commands(servers: Servers) -> None:
    missing = servers.run("status")
    assert missing.returncode == 1
    assert "there is no connection file" in missing.stderr
    servers.start("a")
    servers.start("b", "--spill", "1MiB")
    again = servers.run("start", "--host", "b")
    assert again.returncode == 1
    assert again.stderr == "gspc-iml: host 'b' has a memory server already: name this one with --host\n"
    bad = servers.run("start", "--memory", "much")
    said = "gspc-iml: --memory much: 'much' is not a size; write for example 4GiB, 512MiB or 1000000\n"
    assert (bad.returncode, bad.stderr) == (2, said)
    for size in ("0", "100", "1000TiB"):
        bad = servers.run("start", "--host", "c", "--memory", size)
        assert (bad.returncode, bad.stdout) == (2, "")
        assert "a memory server needs 4096 bytes or more, and this host has" in bad.stderr

    async def make() -> None:
        async with open_iml(connection_file=servers.file) as iml:
            await iml.alloc(300, layout=striped(100, ("a", "b")), name="corpus")

    trio.run(make)
    status = servers.run("status").stdout
    assert "corpus" in status
    assert "67108864" in status
    assert json.loads(servers.run("partition", "d1", "--json").stdout) == {
        "a": [[0, 100], [200, 100]],
        "b": [[100, 100]],
    }
    assert servers.run("free", "d1").stdout == "d1 is free\n"
    unknown = servers.run("free", "d1")
    assert (unknown.returncode, unknown.stderr) == (
        1,
        "gspc-iml: there is no data d1: it was never made, or was freed\n",
    )
    published_by_command(servers)
    first, second = servers.processes["a"], servers.processes["b"]
    assert servers.run("stop").stdout == "stopped\n"
    assert first.wait(HANG_S) == 0
    assert second.wait(HANG_S) == 1
    assert second.stderr is not None
    assert "the memory layer has ended" in second.stderr.read()
    assert not servers.file.exists()


def published_by_command(servers: Servers) -> None:
    file = servers.file.with_name("content")
    file.write_bytes(b"\xff" + bytes(1000))
    assert servers.run("publish", "corpus", str(file)).stdout == "corpus: d2, 1001 bytes\n"
    assert servers.run("read", "corpus", "--output", f"{file}.read").returncode == 0
    assert file.with_name("content.read").read_bytes() == file.read_bytes()
    file.write_text('{"rate": 0.5}')
    assert servers.run("publish", "corpus", str(file), "--json").returncode == 0
    assert json.loads(servers.run("read", "corpus").stdout) == {"rate": 0.5}
    gone = servers.run("free", "d2")
    assert gone.stderr == (
        "gspc-iml: data d2 was published as 'corpus', and is gone: other data was published under this name\n"
    )


async def test_the_memory_of_a_run_time_system_spills_where_the_user_says(tmp_path: Path) -> None:
    sizes = {"data_bytes": 8 * MIB, "spill_bytes": 64 * MIB}
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, **sizes, spill_directory=str(tmp_path)) as rts:
            async with open_iml(layer=rts.data) as iml:
                made = [await iml.alloc(MIB, bytes([number]) * MIB) for number in range(20)]
                (server,) = (await iml.status()).servers
                assert (server.memory_bytes, server.spill_bytes) == (8 * MIB, 64 * MIB)
                for number, data in enumerate(made):
                    assert await iml.get(data.range(MIB - 1, 1)) == bytes([number])
        with pytest.raises(BadSetting, match="spill_directory='/no/such': there is no such directory"):
            async with open_rts(cores=1, **sizes, spill_directory="/no/such"):
                raise AssertionError("it came up")


NONSENSE: tuple[tuple[Any, ...], ...] = (
    (local.LOOK_UP, 1, 5),
    (local.TAKE_BACK, 1),
    (local.SHOW, 1, "d1"),
    (local.UNMAP, 1, "d1", None),
    (local.LEND, 1, -1),
    (local.SEVERAL, 0, 7),
    (99, 1),
)


def test_a_process_that_talks_nonsense_to_its_memory_server_harms_only_itself(servers: Servers) -> None:
    servers.start("a")
    info = read_connection_file(servers.file)
    address = local.socket_address_of(info.token, info.address, "a")
    honest = LocalClient(address, "")
    made = honest.write([memoryview(b"honest")])
    for said in NONSENSE:
        with local.open_socket(address) as liar:
            liar.settimeout(HANG_S)
            liar.send(local.pack(said))
            assert liar.recv(1 << 16) == b"", said
    with closing(honest):
        mapped = honest.map(made)
        assert bytes(mapped) == b"honest"
        del mapped
    assert servers.run("status").returncode == 0
    assert servers.processes["a"].poll() is None
