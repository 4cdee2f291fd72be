"""The study of the examples, as its file says, from the launcher to the estimate."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gspc_trio.nursery.connections.connection_file import ConnectionInfo, write_connection_file
from tests.e2e.support import ROOT, World

pytestmark = pytest.mark.process


def test_a_server_and_twenty_clients_estimate_pi(world: World) -> None:
    (world.folder / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = world.run("launcher", "-c", "examples/study/study.toml", env={"PATH": path})
    assert done.returncode == 0, done.stderr
    (folder,) = world.folder.glob("study-*")
    assert len(list(folder.glob("hits.*"))) == 20
    assert abs(float((folder / "pi.txt").read_text()) - 3.14) < 0.05
    said = (folder / "job.0.server.out").read_text().splitlines()
    assert len([line for line in said if "is completed" in line]) == 20
    assert said[-1].startswith("pi is about 3.1")
    world.wait_nothing_left()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_server_in_shell_and_curl(world: World) -> None:
    (world.folder / "examples").symlink_to(ROOT / "examples")
    done = world.run("launcher", "-c", "examples/study/http.toml")
    assert done.returncode == 0, done.stderr
    (folder,) = world.folder.glob("study-*")
    said = {path.read_text() for path in folder.glob("job.*.client.*.out")}
    assert said >= {f"client {client_id}\n" for client_id in range(8)}
    secrets = [json.loads(path.read_text())["token"] for path in (folder / "secret").glob("server.*.json")]
    others = [path.read_text() for path in folder.glob("*.*")]
    assert secrets
    assert not [text for text in others for secret in secrets if secret in text]
    assert not (folder / "secret" / "http.json").exists(), "nobody answers any more"
    world.wait_nothing_left()


def test_the_server_in_shell_tells_nothing_to_the_port_of_another_host(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        http = f"http://127.0.0.1:{somebody.getsockname()[1]}"
        info = ConnectionInfo.create("ws://127.0.0.1:1/", b"secret", "1", http=http)
        write_connection_file(tmp_path / "server.0.json", replace(info, host="login-2"))
        done = subprocess.run(
            ["/bin/sh", ROOT / "examples" / "study" / "server.sh"],
            env={"GSPC_SERVER_FILE": str(tmp_path / "server.0.json"), "PATH": os.defpath},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "the launcher runs on the host login-2, which alone can reach its HTTP interface\n"
        )
        somebody.setblocking(False)
        with pytest.raises(BlockingIOError):
            somebody.accept()
