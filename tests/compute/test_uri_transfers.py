"""What URIs name, as the process that moves it finds it."""

from __future__ import annotations

import socket
import zipfile
from pathlib import Path

import pytest

from gspc_trio.compute.channel import CONTROL_BYTES_MAX, FOUND, unpack
from gspc_trio.compute.uri_transfers import TooLarge, _Order

pytest.importorskip("fsspec")


def test_a_name_in_an_archive_that_no_packet_can_hold_is_refused(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        for name, most in (("fits.zip", 7000), ("long.zip", 65_535)):
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                for first in "abc":
                    archive.writestr(first * most, "")
        uri = f"zip://*::file://{tmp_path}"
        order = _Order(theirs, f"{uri}/fits.zip", "h", [str(tmp_path)], str(tmp_path), 100)
        kind, is_more, last = order._list()
        assert (kind, is_more) == (FOUND, False)
        assert isinstance(last, list)
        kind, is_more, names = unpack(ours.recv(CONTROL_BYTES_MAX))
        assert (kind, is_more, len(names) + len(last)) == (FOUND, True, 3)
        order = _Order(theirs, f"{uri}/long.zip", "h", [str(tmp_path)], str(tmp_path), 100)
        with pytest.raises(TooLarge, match="a name with which its URI is too long"):
            order._list()
