"""The keys of ``sites.toml``: what they mean, and the one line that says what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.site_settings import (
    BadSite,
    SiteSettings,
    given_sites,
    read_sites,
    site_settings,
    sites_of,
    written,
)

LEAST = {"provider": "slurm"}


def test_all_kinds_of_values_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(
        'job_submit = 4\nfile_transfers = "off"\n'
        '[hpc]\nprovider = "slurm"\nmax_time = "2h"\nmax_nodes = 4\ncores_per_node = 16\nqueue = "short"\n'
        'arguments = ["--exclusive", "--qos=low"]\nreserve = 30\nspread = 0.5\nhost_job = 100\n'
        '[far]\nprovider = "slurm"\nvia = "ssh:login"\n'
    )
    said = read_sites(path)
    assert said.throttles == {"job_submit": 4, "file_transfers": None}
    assert list(said.sites) == ["hpc", "far"]
    assert said.sites["hpc"] == SiteSettings(
        "slurm",
        BlockSettings(7200.0, 4, 16, reserve_s=30.0, spread=0.5),
        options={"queue": "short", "arguments": "--exclusive --qos=low"},
        throttles={"host_job": 100},
    )
    assert said.sites["far"] == SiteSettings("slurm", via="ssh:login")


def test_texts_of_a_command_line_mean_the_same_as_values_of_a_file() -> None:
    texts = site_settings(
        "a", LEAST | {"max_nodes": "4", "spread": "0.5", "host_job": "off", "reserve": "1m"}
    )
    values = site_settings("a", LEAST | {"max_nodes": 4, "spread": 0.5, "host_job": "off", "reserve": 60})
    assert texts == values


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"partition": "debug"}, "site a: there is no setting 'partition' (did you mean 'queue'?)"),
        ({"cores": 16}, "site a: there is no setting 'cores' (did you mean 'cores_per_node'?)"),
        ({"max_nods": 3}, "site a: there is no setting 'max_nods' (did you mean 'max_nodes'?)"),
        ({"max_time": "2 hours"}, "max_time: '2 hours': there is no unit 'hours' (did you mean 'h'?)"),
        ({"max_time": "2 parsecs"}, "there is no unit 'parsecs'; there are: s, m, h, d"),
        ({"max_time": "soon"}, "max_time: 'soon' is no time; write for example 90s, 10m, 2h or 1d"),
        ({"max_time": 30}, "site a: nothing is left of max_time_s 30 without reserve_s 60"),
        ({"node_granularity": 4, "max_nodes": 2}, "site a: node_granularity 4 is more than max_nodes 2"),
        ({"spread": 1.5}, "spread: 1.5 is no number that is from 0 to 1"),
        ({"exponential_spread": 1}, "the ratio of successive blocks is more than 1; 0 for a linear spread"),
        ({"slots": 2.5}, "slots: 2.5 is no whole number"),
        ({"slots": True}, "slots: True is no number that is 1 or more"),
        ({"max_nodes": "many"}, "max_nodes: 'many' is no number that is 1 or more"),
        ({"allocation_step": 0}, "allocation_step: 0: it is more than 0"),
        ({"host_job": 0}, "throttle host_job: 0 is no limit; write a whole number from 1 on, or off"),
        ({"job_submit": 1}, "there is no setting 'job_submit' (did you mean 'host_job_submit'?)"),
        ({"staging": "swfit"}, "there is no staging 'swfit' (did you mean 'swift'?)"),
        ({"memory": "much"}, "memory: 'much' is not a size; write for example 4GiB, 512MiB or 1000000"),
        ({"arguments": ["a b"]}, "arguments: ['a b'] is no list of arguments without spaces"),
        ({"queue": 3}, "queue: 3 is no text of one line"),
        ({"provider": ""}, 'it has no provider; write for example provider = "slurm"'),
    ],
)
def test_what_cannot_be_is_said_in_one_line(given: dict[str, object], words: str) -> None:
    with pytest.raises(BadSite) as caught:
        site_settings("a", LEAST | given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "1a", "a b", "a" * 65])
def test_a_name_that_cannot_be_part_of_the_names_of_hosts_is_refused(name: str) -> None:
    with pytest.raises(BadSite, match="a name has letters"):
        site_settings(name, LEAST)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it names no site"),
        ("slots = 3\n", "there is no setting 'slots' of all sites; settings of a site stand below its name"),
        ("job_submi = 3\n", "there is no setting 'job_submi' of all sites (did you mean 'job_submit'?)"),
        ("job_submit = 0\n", "throttle job_submit: 0 is no limit; write a whole number from 1 on, or off"),
        ("[a\n", "Expected ']'"),
    ],
)
def test_a_file_that_cannot_be_names_itself(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "sites.toml"
    path.write_text(text)
    with pytest.raises(BadSite) as caught:
        given_sites(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(BadSite, match=r"/nowhere/sites\.toml: No such file"):
        given_sites("/nowhere/sites.toml")


def test_an_address_of_a_cluster_is_a_site() -> None:
    said = given_sites("dask://scheduler:8786")
    address = {"address": "dask://scheduler:8786"}
    assert said.sites == {"dask": SiteSettings("dask", options=address, asks_size=True)}
    assert said == sites_of({"dask": {"provider": "dask", **address}})


def test_a_cluster_says_how_large_it_is_unless_it_was_said() -> None:
    found = site_settings("d", {"provider": "dask", "address": "a:1", "max_time": "2h"}).with_size(3, 8)
    assert found.blocks == BlockSettings(7200.0, 1, 8, slots=3, allocation_step=1.0)
    assert not found.asks_size
    assert not site_settings("d", {"provider": "dask", "address": "a:1", "cores_per_node": 2}).asks_size


def test_the_settings_that_hold_are_written_as_they_are_read():
    given = {"provider": "slurm", "via": "ssh:login", "max_time": "90m", "max_nodes": 4, "spread": 0.3}
    given |= {"host_job": "off", "host_job_submit": 3, "arguments": ["--qos=a", "-x"], "queue": "short"}
    settings = site_settings("hpc", given)
    said = written(settings)
    assert site_settings("hpc", said) == settings
    assert (said["max_time"], said["spread"], said["idle_end"]) == ("5400s", "0.3", "120s")
    assert (said["host_job"], said["arguments"], said["slots"]) == ("off", "--qos=a -x", "20")
