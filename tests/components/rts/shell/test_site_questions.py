"""What people are told of sites, in words."""

from __future__ import annotations

from gspc_trio.components.provision.score import SiteOutcome
from gspc_trio.components.provision.site_events import SiteAdded
from gspc_trio.components.provision.site_settings import SiteSettings
from gspc_trio.components.provision.sites import Sites
from gspc_trio.components.rts.shell.site_questions import site_words


def test_who_waits_for_a_banned_site_is_told_why():
    machine = Sites()
    machine.handle(SiteAdded(1, "hpc", SiteSettings("slurm")), 0.0)
    site = machine.sites["hpc"]
    assert site_words(machine, site, 0.0) == "site hpc is open, 0 of 20 slots used"
    for _ in range(12):
        machine.scores.count("hpc", SiteOutcome.LOSS, 0.0)
    words = "site hpc is open, banned for 7 s: 12 losses, 0 of 20 slots used"
    assert site_words(machine, site, 0.0) == words
