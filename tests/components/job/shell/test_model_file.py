"""Files of performance models: made, merged with what others write, and left alone when they are bad."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio import JobSettings, Net, open_job, open_rts
from gspc_trio.cli import kept
from gspc_trio.cli.common import UsageError
from gspc_trio.components.job.scheduler.interface import RunKey
from gspc_trio.components.job.shell import model_file
from gspc_trio.components.job.shell.model_file import (
    SAVE_INTERVAL_S,
    change_file,
    open_model_file,
    read_file,
)
from gspc_trio.core.code import Variant, Variants
from gspc_trio.executor.facade import Executor
from gspc_trio.policies.model_text import BadModel
from gspc_trio.policies.performance_model import Mean, PerformanceModel

OWN, THEIRS = RunKey("a", "cpu", "core", "EPYC"), RunKey("b", "gpu", "gpu", "EPYC")


def means(path: Path) -> dict[str, dict[int, Mean]]:
    return {key.code: curve.means for key, curve in read_file(path).curves.items()}


def learn(model: PerformanceModel, key: RunKey, seconds: float) -> PerformanceModel:
    model.learn(key, 8, None, seconds)
    return model


async def test_what_is_learned_is_written_every_minute_and_at_the_end_beside_what_others_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def at_once(function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)  # a clock that jumps does not wait for threads

    assert autojump_clock.autojump_threshold == 0.0
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    path = tmp_path / "times.json"
    async with open_model_file(path) as file:
        assert read_file(path) == PerformanceModel()
        path.chmod(0o640)
        learn(file.model, OWN, 1.0)
        change_file(path, lambda model: learn(model, THEIRS, 2.0))
        await trio.sleep(SAVE_INTERVAL_S - 1)
        assert means(path) == {"b": {8: Mean(1, 2.0)}}
        await trio.sleep(2)
        await trio.sleep(2)
        assert means(path) == {"b": {8: Mean(1, 2.0)}, "a": {8: Mean(1, 1.0)}}
        change_file(path, lambda model: learn(model, OWN, 2.0))
        learn(file.model, OWN, 2.0)
    assert means(path)["a"] == {8: Mean(3, 1.5)}, "two have learned from the same sample"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["times.json"]


async def test_a_file_that_went_bad_meanwhile_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "times.json"
    async with open_model_file(path) as file:
        learn(file.model, OWN, 1.0)
        torn = path.read_text()[:-3]
        path.write_text(torn)
    assert path.read_text() == torn
    assert f"was not written: {path}, line 3: " in caplog.text


def test_whoever_replaces_a_file_keeps_others_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "LOCK_TIMEOUT_S", 0.0)
    path = tmp_path / "times.json"
    change_file(path, lambda model: learn(model, OWN, 1.0))
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match=r"times.json is being written by others for 0 s"):
            change_file(path, lambda model: learn(model, OWN, 1.0))
    change_file(path, lambda model: learn(model, OWN, 1.0))
    assert means(path)["a"][8].samples == 2


def test_what_cannot_be_a_model_is_not_touched(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadModel, match="pipe is no regular file"):
        change_file(tmp_path / "pipe", lambda model: model)
    with pytest.raises(BadModel, match="pipe is no regular file"):
        read_file(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        change_file(tmp_path, lambda model: model)
    with pytest.raises(FileNotFoundError):
        change_file(tmp_path / "missing" / "times.json", lambda model: model)
    path = tmp_path / "times.json"
    path.write_bytes(b'{"version": 1,\n"\xff": 2}')
    with pytest.raises(BadModel, match=r"times.json, line 2: this is no text in UTF-8"):
        change_file(path, lambda model: model)


def double(value: int) -> int:
    return 2 * value


def test_an_executor_keeps_run_times_and_people_look_at_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "times.json", tmp_path / "other.json"
    code = Variants(size=lambda value: value, cpu=double, gpu=Variant(double, requires="gpu"))
    with Executor(cores=1, model=path) as executor:
        assert list(executor.map(code, [8] * 5)) == [16] * 5
    with Executor(cores=1, model=str(path)) as executor:
        assert list(executor.map(code, [8] * 3)) == [16] * 3
    ((key, curve),) = read_file(path).curves.items()
    assert (key.code, key.variant, key.resource_class) == ("double", "cpu", "core")
    assert sum(mean.samples + mean.errors for mean in curve.means.values()) <= 6, "two processes ran it first"

    other.write_text('{"version": 1, "times": [{"code": "f", "variant": "v", "run_s": 2}]}')
    kept.merge(path, other)
    kept.show(path)
    kept.show(path, json=True)
    kept.forget(path, "f")
    told = capsys.readouterr().out
    assert "double[cpu]" in told
    assert "stated                any" in told
    assert '"run_s": 2' in told
    assert told.endswith("1 run time forgotten\n")

    path.write_text('{"version": 1,\n"times": 7}')
    with pytest.raises(BadModel, match=r"times.json, line 2: Expected `object`, got `int`"):
        Executor(cores=1, model=path)
    with pytest.raises(UsageError, match="it is not said what is merged into FILE"):
        kept.merge(other)


async def test_a_bad_file_is_told_before_the_job_is_known(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text("7")
    net = Net("one")
    net.input("a")
    net.output("b")
    net.transition("double", double, inputs=["a"], outputs=["b"])
    async with open_rts(cores=1) as rts:
        with pytest.raises(BadModel, match=r"times.json, line 1"):
            async with open_job(net, rts=rts, values={"a": [1]}, settings=JobSettings(model=str(path))):
                pass
        async with open_job(net, rts=rts, values={"a": [1]}) as job:
            result = await job.wait()
            assert (job.job_id, result.outputs) == ("j1", {"b": [2]})
    assert path.read_text() == "7"
