"""What a run-time system tells people."""

from __future__ import annotations

from gspc_trio.components.rts.state import ManagedRif, RifState
from gspc_trio.components.rts.status import how_they_are, who_may_move


def rif(number: int, host: str, reason: str = "", block: str = "") -> ManagedRif:
    return ManagedRif(f"r{number}", host, "slurm", 2, {}, reason=reason, block=block)


def test_hosts_of_other_managers_are_no_hosts_that_are_being_started() -> None:
    rifs = [rif(number, host) for number, host in enumerate(("anna", "berta", "cleo"), 1)]
    for one in rifs[:2]:
        one.state = RifState.UP
    assert who_may_move(rifs) == "; hosts of other managers may move to it: anna, berta"
    assert who_may_move(rifs[2:]) == ""


def test_nodes_of_a_block_that_are_alike_are_told_of_together() -> None:
    queued = [rif(number, f"hpc/b1.{number}", "job 17 is queued", "hpc/b1") for number in range(3)]
    other = rif(3, "hpc/b1.3", "no python", "hpc/b1")
    assert how_they_are([*queued, other, rif(4, "anna"), rif(5, "berta")]) == (
        "; 3 nodes of hpc/b1 are starting: job 17 is queued; hpc/b1.3 is starting: no python"
        "; anna is starting; berta is starting"
    )
    assert how_they_are([]) == ""
