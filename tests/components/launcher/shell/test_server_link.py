"""Where a launcher listens for servers."""

from __future__ import annotations

import pytest

from gspc_trio.components.launcher.shell.server_link import listen_address, server_name
from gspc_trio.protocol.address import BadAddress


@pytest.mark.parametrize(
    ("bind", "is_encrypted", "address"),
    [
        ("127.0.0.1", False, "ws://127.0.0.1:0"),
        ("localhost", False, "ws://localhost:0"),
        ("::1", False, "ws://[::1]:0"),
        ("127.0.0.1", True, "wss://127.0.0.1:0"),
        ("192.0.2.1", True, "wss://192.0.2.1:0"),
        ("0.0.0.0", True, "wss://0.0.0.0:0"),
    ],
)
def test_servers_connect_where_the_options_say(bind: str, is_encrypted: bool, address: str):
    assert listen_address(bind, is_encrypted=is_encrypted) == address


@pytest.mark.parametrize("bind", ["192.0.2.1", "0.0.0.0", "::", "host.example"])
def test_what_others_can_reach_is_encrypted(bind: str):
    words = (
        f"bind: other hosts can reach {bind}, and nothing would be encrypted: say --tls, or bind 127.0.0.1"
    )
    with pytest.raises(BadAddress, match=words):
        listen_address(bind, is_encrypted=False)


@pytest.mark.parametrize("bind", ["", "a b", "host:80", "a..b", "x" * 70, "user@host"])
def test_what_is_no_host_is_said_in_one_line(bind: str):
    with pytest.raises(BadAddress, match=r"^bind: .* is no address of a host$"):
        listen_address(bind, is_encrypted=True)


@pytest.mark.parametrize(("job_id", "name"), [("", "3"), ("17", "3 17"), ("17_2[1-3]", "3 17_2[1-3]")])
def test_a_server_says_what_its_job_is_called(job_id: str, name: str):
    assert server_name("3", job_id) == name


def test_an_odd_id_of_a_job_is_left_out():
    assert server_name("3", "-x\n") == "3"
