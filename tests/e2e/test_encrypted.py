"""An encrypted run-time system on this host, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.support import SLEEPERS, World, one_line


def test_everything_goes_encrypted_when_asked(world: World) -> None:
    world.start_rts("--tls", "--cores", "2")
    connection = world.folder / "runtime" / "gspc-trio" / "rts.json"
    data = json.loads(connection.read_text())
    assert data["address"].startswith("wss://127.0.0.1:")
    assert world.run("rts", "bootstrap", "anna", "--cores", "1").returncode == 0
    flow = world.workflow(SLEEPERS)
    given = ("--set", "n=50", "--set", "seconds=0.01", "--rts", str(connection), "--json")
    done = world.run("jobserver", "run", flow, *given)
    assert json.loads(done.stdout)["tasks"]["finished"] == 50
    workers = world.run_json("rts", "status")["rifs"]
    assert len(workers) == 2
    authority = connection.parent / "tls" / "authority.pem"
    assert authority.stat().st_mode & 0o777 == 0o600
    data["credentials"] = ""
    stranger = world.folder / "stranger" / "rts.json"
    stranger.parent.mkdir(mode=0o700)
    stranger.write_text(json.dumps(data))
    stranger.chmod(0o600)
    done = world.run("rts", "status", "--rts", str(stranger))
    assert done.returncode == 1
    assert "needs credentials for TLS" in one_line(done.stderr)
    assert world.run("rts", "stop").returncode == 0


def test_what_others_could_read_is_refused_with_what_to_do(world: World) -> None:
    for address, advice in (("192.0.2.1", "add --tls"), ("0.0.0.0", "name the one")):
        done = world.run("rts", "start", "--listen", address)
        assert done.returncode == 2
        assert advice in one_line(done.stderr)
    world.start_rts("--cores", "1")
    done = world.run("rts", "bootstrap", "elsewhere.invalid", "--strategy", "ssh")
    assert done.returncode == 1
    assert "start it with gspc-rts start --tls --listen ADDRESS" in one_line(done.stdout)
    assert world.run("rts", "stop").returncode == 0


def test_an_authority_that_others_can_read_vouches_for_nobody(world: World) -> None:
    folder = world.folder / "runtime" / "gspc-trio" / "tls"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    path = Path(folder / "authority.pem")
    path.write_text("something")
    path.chmod(0o644)
    done = world.run("rts", "start", "--tls")
    assert "others can read" in one_line(done.stderr)
