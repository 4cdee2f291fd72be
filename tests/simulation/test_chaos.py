"""What the harness that kills and stops real processes does and measures; `make chaos` runs it."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

import pytest

from gspc_trio.testing.chaos import KINDS, MORE_KILLS, Chaos, Deck, Forwarder, Strike

HANG_S = 300.0


def record(at_s: float, state: str, detail: str = "") -> dict[str, object]:
    return {"record": "TaskChanged", "task_id": 7, "at_s": at_s, "state": state, "detail": detail}


def test_times_are_taken_from_the_kill_to_the_record_and_to_running_again(tmp_path: Path):
    chaos = Chaos(tmp_path, Random(0), 10)
    tasks = [record(1.0, "running"), record(2.5, "ready", "lost: it died"), record(2.75, "running")]
    chaos._measure_strike(2.0, 9.0, tasks)
    assert (chaos.findings.detect_ms, chaos.findings.reschedule_ms) == ([500.0], [250.0])
    chaos._measure_strike(2.0, 2.25, tasks)  # another strike came before the loss
    assert len(chaos.findings.detect_ms) == 1


def test_a_forgotten_connection_is_silent_and_stays_open_while_new_ones_go_through():
    with socket.create_server(("127.0.0.1", 0)) as server:
        forwarder = Forwarder(lambda: server.getsockname()[1])
        try:
            here, there = connect_through(forwarder, server)
            here.sendall(b"before")
            assert there.recv(100) == b"before"
            assert forwarder.forget() == 1
            here.sendall(b"lost")
            again, beyond = connect_through(forwarder, server)
            again.sendall(b"after")
            assert beyond.recv(100) == b"after"
            there.setblocking(False)
            with pytest.raises(BlockingIOError):  # neither data nor an end
                there.recv(100)
            again.close()
            assert beyond.recv(100) == b"", "ends go through as well"
        finally:
            forwarder.close()
        for one in (here, there, beyond):
            one.close()


def connect_through(forwarder: Forwarder, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    here = socket.create_connection(("127.0.0.1", forwarder.port), HANG_S)
    there, _ = server.accept()
    there.settimeout(HANG_S)
    return here, there


def test_strikes_are_told_in_words():
    assert str(Strike(0.0, "rif", 12, 0.0)) == "rif 12 killed"
    assert str(Strike(0.0, "job", 13, 6.0)) == "job 13 stopped for 6 s"
    assert str(Strike(0.0, "job link", 14, 0.0)) == "connection of job 14 half-open"


def test_everything_happens_before_anything_happens_once_more_but_for_kills():
    deck = Deck(Random(0))
    first = [deck.draw() for _ in range(len(KINDS) + 2 * MORE_KILLS)]
    assert set(first) == set(KINDS) == {deck.draw() for _ in first}
    last = [deck.draw() for _ in range(len(first) - 1)]
    deck.put_back(last[0])
    assert len({deck.draw(), deck.draw()} & {last[0]}) == 1
    assert {role for role, _ in KINDS} == {"compute", "rif", "job", "rts", "job link", "rif link"}
