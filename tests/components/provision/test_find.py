"""Providers are found by their names, those of installed packages, too."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gspc_trio.components.provision.batch import BatchRequest, CommandResult, QueryFailed
from gspc_trio.components.provision.find import ProviderError, find_provider, provider_names

HAZE = """
from gspc_trio.components.provision.providers.slurm import SlurmProvider

class Haze(SlurmProvider):
    name = "haze"

class Thin:
    name = "thin"
"""


def test_each_built_in_provider_is_there_under_its_own_name():
    assert [find_provider(name).name for name in provider_names()] == provider_names()


def test_providers_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "haze.py").write_text(HAZE)
    info = tmp_path / "haze-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: haze\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gspc_trio.providers]\nhaze = haze:Haze\nthin = haze:Thin\ngone = haze:absent\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert find_provider("haze").name == "haze"
    built_in = ", ".join(name for name in provider_names() if name not in ("haze", "gone", "thin"))
    for name, why in (
        ("hazeg", rf"no provider 'hazeg' \(did you mean 'haze'\?\); there are: {built_in}, gone, haze, thin"),
        ("thin", r"the provider 'thin' of haze:Thin is .*, which has no address"),
        ("gone", "the provider 'gone' of haze:absent cannot be used: AttributeError"),
    ):
        with pytest.raises(ProviderError, match=why):
            find_provider(name)


def test_the_commands_of_a_provider_may_run_on_another_host() -> None:
    slurm = find_provider("slurm", via="ssh:login")
    assert slurm.query("17")[:-1] == ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", "login")
    assert slurm.query("17")[-1] == shlex.join(find_provider("slurm").query("17"))
    assert shlex.split(slurm.submit(BatchRequest("a b"))[-1])[2] == "--job-name=a b"
    assert slurm.submitted(CommandResult(0, "17\n", "")) == "17"
    assert slurm.told(CommandResult(0, "", "")) == ()


def test_what_ssh_could_not_run_says_nothing() -> None:
    slurm, failed = find_provider("slurm", via="ssh:login"), CommandResult(255, "", "Connection refused")
    assert slurm.submitted(failed) is None, "nobody knows whether there is a job"
    with pytest.raises(QueryFailed, match="Connection refused"):
        slurm.told(failed)


@pytest.mark.parametrize("via", ["ssh", "ssh:", "login", "rsh:login", "ssh:-oProxyCommand=x"])
def test_commands_run_elsewhere_by_ssh_only(via: str) -> None:
    with pytest.raises(ProviderError, match="write ssh:HOST"):
        find_provider("slurm", via=via)
