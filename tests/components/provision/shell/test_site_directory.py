"""Directories of sites: one for all hosts at a time, removed by a job that is queued and not waited for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from gspc_trio.components.provision.batch import BatchRequest, CommandResult
from gspc_trio.components.provision.providers.local import LocalProvider
from gspc_trio.components.provision.shell.commands import SiteDirectories
from tests.support import until

WANTED = BatchRequest("gspc-r1", 4, 7200)


async def command(words: tuple[str, ...], stdin: str) -> CommandResult:
    done = await trio.run_process(words, stdin=stdin.encode(), capture_stdout=True, capture_stderr=True)
    return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())


async def test_hosts_share_a_directory_which_a_job_removes_after_the_last(tmp_path: Path) -> None:
    sites = SiteDirectories(LocalProvider(), command)
    parent = tmp_path / "what's shared"
    async with sites.held(str(parent), WANTED) as directory:
        async with sites.held(str(parent), WANTED) as same, sites.held(str(tmp_path), WANTED) as other:
            assert directory == same != other
        await trio.Path(directory, "job-j1").mkdir(parents=True)
        (tmp_path / "precious").touch()
    await until(lambda: not any(parent.iterdir()))
    assert (tmp_path / "precious").exists()
    async with sites.held(str(parent), WANTED) as again:
        assert again != directory, "the job that removes may still wait in the queue"


async def test_a_directory_that_nobody_has_made_needs_no_job(tmp_path: Path) -> None:
    async def nothing(words: tuple[str, ...], stdin: str) -> CommandResult:
        raise AssertionError((words, stdin))

    async with SiteDirectories(LocalProvider(), nothing).held(str(tmp_path), WANTED):
        pass


async def test_who_must_look_himself_is_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The batch system refuses the job, or does not answer."""
    wanted = BatchRequest("gspc-r1", queue="long")  # which this one does not have
    with caplog.at_level(logging.WARNING):
        async with SiteDirectories(LocalProvider(), command).held(str(tmp_path), wanted) as directory:
            await trio.Path(directory).mkdir()
    assert f"local may not remove the directory {directory}: local has no queues" in caplog.text
    assert "remove it by hand" in caplog.text
