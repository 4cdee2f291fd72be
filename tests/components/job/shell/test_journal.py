"""The journal of a job on disk: durable first, bounded, for one job server at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from gspc_trio import Net, farm, open_job, open_rts, pipeline
from gspc_trio.components.job.journal import JournaledEngine, Outcomes
from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.journal import Journal, JournalError, create_journal, open_journal
from gspc_trio.components.job.shell.journal_files import JournalDirectory, read_journal
from gspc_trio.core.task import Outcome, Reason, TaskState
from gspc_trio.protocol.values import dumps
from tests.components.tasks.journal import double

HANG_S = 60.0
ABOUT = About("1", "flow.py", "f00", (), {})


def doubles(number: int) -> Net:
    return farm(double, name="doubles", default=list(range(number)))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("journal.*"))


def durable(folder: Path) -> list[int]:
    """The tasks whose results the file on disk has."""
    assert len(files(folder)) == 1
    _, records = read_journal(JournalDirectory(folder))
    return [task_id for record in records if isinstance(record, Outcomes) for task_id, _ in record.rows]


def extract(engine: JournaledEngine) -> list[TaskDone]:
    """Hand out all that is ready; return how these tasks end."""
    ends = []
    while (task_id := engine.next()) is not None:
        task = engine.extract(task_id)
        outcome = Outcome(task_id, 1, Reason.FINISHED, ((dumps(task_id),),))
        ends.append(TaskDone(task_id, TaskState.FINISHED, outcome, task.name))
    return ends


async def write(journal: Journal, folder: Path, engine: JournaledEngine, ends: list[TaskDone]) -> None:
    """Write results one after the other, each taken in when it is durable."""
    async with trio.open_nursery() as nursery:
        waiting: list[TaskDone] = []
        more = trio.Event()

        def kept(count: int) -> None:
            nonlocal more
            for done in waiting[:count]:
                assert done.task_id in durable(folder), "it is on disk before it is taken in"
                engine.inject(done.task_id, done.outcome.values)
            del waiting[:count]
            more.set()
            more = trio.Event()

        nursery.start_soon(journal.run, kept)
        for done in ends:
            journal.keep(done)
            waiting.append(done)
            await more.wait()
        nursery.cancel_scope.cancel()


async def test_what_is_taken_in_is_on_disk_already(tmp_path: Path) -> None:
    with create_journal(tmp_path / "j", ABOUT) as journal:
        engine = await journal.recover(doubles(5), {})
        await write(journal, tmp_path / "j", engine, extract(engine)[:3])
    with open_journal(tmp_path / "j") as journal:
        assert replace(journal.about, identities={}) == ABOUT
        again = await journal.recover(doubles(5), {})
        assert journal.finished_before == 3
        assert again.engine.outputs() == {"results": [1, 2, 3]}
        assert [done.task_id for done in extract(again)] == [4, 5]


async def test_results_that_come_together_reach_the_disk_together(tmp_path: Path) -> None:
    with create_journal(tmp_path / "j", ABOUT) as journal:
        engine = await journal.recover(doubles(500), {})
        for done in extract(engine):
            journal.keep(done)
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_until_kept, journal, 500, nursery.cancel_scope)
        assert journal.syncs == 1
    assert len(durable(tmp_path / "j")) == 500


async def _run_until_kept(journal: Journal, count: int, scope: trio.CancelScope, task_status: Any) -> None:
    left = [count]

    def kept(number: int) -> None:
        left[0] -= number
        if not left[0]:
            scope.cancel()

    task_status.started()
    await journal.run(kept)


async def test_a_journal_does_not_grow_without_bound(tmp_path: Path) -> None:
    folder, longest = tmp_path / "j", 0
    with create_journal(folder, ABOUT, file_bytes_max=1_000) as journal:
        engine = await journal.recover(doubles(80), {})
        for _ in range(3):
            ends = extract(engine)
            await write(journal, folder, engine, ends)
            (path,) = files(folder)
            longest = max(longest, path.stat().st_size)
            engine.engine.put("items", range(80))
        state_bytes = len(repr(engine.engine.dump()))
        assert int(path.suffix[1:]) > 3, "there was a new file now and then"
    assert longest < 2 * state_bytes + 1_000
    with open_journal(folder) as journal:
        again = await journal.recover(doubles(80), {})
        assert len(again.engine.outputs()["results"]) == 240


async def test_what_is_durable_but_not_taken_in_survives_a_new_file(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT, file_bytes_max=1) as journal:
        engine = await journal.recover(doubles(40), {})
        first, *others = extract(engine)
        for done in others:
            journal.keep(done)
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_until_kept, journal, len(others), nursery.cancel_scope)
    with open_journal(folder) as journal:
        again = await journal.recover(doubles(40), {})
        assert [done.task_id for done in extract(again)] == [first.task_id]


async def test_a_crash_between_two_files_leaves_the_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT) as journal:
        engine = await journal.recover(doubles(5), {})
        await write(journal, folder, engine, extract(engine)[:2])
    (folder / "new").write_bytes(files(folder)[0].read_bytes()[:50])
    (folder / "journal.000002").write_bytes(b"")
    with open_journal(folder) as journal:
        await journal.recover(doubles(5), {})
        assert journal.finished_before == 2
    assert len(files(folder)) == 1


async def test_a_job_goes_on_from_a_copy_made_while_it_ran(tmp_path: Path) -> None:
    """As after a crash: the copy holds what was durable at some time."""
    first, copy = tmp_path / "first", tmp_path / "copy"
    async with open_rts(cores=2) as rts:
        with create_journal(first, ABOUT) as journal:
            async with open_job(doubles(400), rts=rts, journal=journal) as job:
                while not durable(first):
                    await trio.lowlevel.checkpoint()
                shutil.copytree(first, copy)
                whole = await job.wait()
        with open_journal(copy) as journal:
            async with open_job(doubles(400), rts=rts, journal=journal) as job:
                result = await job.wait()
            assert journal.finished_before > 0
    assert sorted(result.outputs["results"]) == sorted(whole.outputs["results"])
    assert result.tasks["finished"] == 400


async def test_a_journal_has_one_job_server_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT) as journal:
        await journal.recover(doubles(1), {})
        with pytest.raises(JournalError, match="a job server that runs uses"), open_journal(folder):
            pass
    with pytest.raises(JournalError, match="gspc-jobserver resume"), create_journal(folder, ABOUT):
        pass


def test_what_is_no_journal_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal"), open_journal(tmp_path / "none"):
        pass
    folder = tmp_path / "other"
    folder.mkdir(mode=0o700)
    with pytest.raises(JournalError, match="other has no journal: name the"), open_journal(folder):
        pass
    assert list(folder.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="file is a file, and no journal"), open_journal(tmp_path / "file"):
        pass
    (folder / "journal.000001").write_text("something else")
    with pytest.raises(JournalError, match="not a journal"), open_journal(folder):
        pass


async def test_a_symbolic_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    folder, victim = tmp_path / "j", tmp_path / "victim"
    victim.write_text("precious")
    folder.mkdir(mode=0o700)
    (folder / "lock").symlink_to(victim)
    with pytest.raises(OSError), create_journal(folder, ABOUT):
        pass
    (folder / "lock").unlink()
    (folder / "new").symlink_to(victim)
    with create_journal(folder, ABOUT) as journal:
        await journal.recover(doubles(1), {})
    assert victim.read_text() == "precious"


async def test_a_changed_workflow_finds_results_in_files_of_before(tmp_path: Path) -> None:
    """It goes on from there itself; then what was before is no more."""
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT, file_bytes_max=300) as journal:
        engine = await journal.recover(doubles(30), {})
        await write(journal, folder, engine, extract(engine)[:25])
        journal.note_job("j7", "that run-time system")
    assert len(list(folder.glob("earlier.*"))) > 1
    for _ in range(2):
        with open_journal(folder, changed=True) as journal:
            found = await journal.compare(doubles(40), {})
            assert [(one.kept, one.ready) for one in found.transitions] == [(25, 15)]
    assert len(list(folder.glob("earlier.*"))) > 1, "to look changes nothing"
    with open_journal(folder, changed=True) as journal:
        again = await journal.recover(doubles(40), {})
        assert journal.finished_before == 25
        assert again.engine.outputs() == {"results": list(range(1, 26))}
        assert journal.earlier_job("that run-time system") == "j7"
        assert not journal.takes_over, "what is at work there is of the workflow of before"
    assert not list(folder.glob("earlier.*"))
    with open_journal(folder) as journal:
        again = await journal.recover(doubles(40), {})
        assert (journal.finished_before, journal.takes_over) == (25, True)
        assert journal.earlier_job("that run-time system") == ""
        assert len(extract(again)) == 15


async def test_results_that_wait_for_their_tasks_outlive_the_job_server(tmp_path: Path) -> None:
    def two_steps(first: Any) -> Net:
        net = Net("two")
        middle = net.place("middle")
        net.transition("first", first, {"item": net.input("items", default=[1, 2])}, middle)
        net.transition("second", double, {"item": middle}, net.output("results"))
        return net

    def twice(item: int) -> int:
        return item + item

    folder = tmp_path / "j"
    with create_journal(folder, ABOUT) as journal:
        engine = await journal.recover(two_steps(double), {})
        await write(journal, folder, engine, extract(engine))
        await write(journal, folder, engine, extract(engine))
    with open_journal(folder, changed=True) as journal:
        await journal.recover(two_steps(twice), {})
    for left in (2, 1):
        with open_journal(folder) as journal:
            engine = await journal.recover(two_steps(twice), {})
            assert journal.has_rest
            first, *_ = extract(engine)
            await write(journal, folder, engine, [first])
            task = engine.extract(engine.next() or 0)
            assert task.name == "second"
            (outcome,) = await journal.recall([task])
            assert outcome.values, f"{left} are left"
            await write(
                journal, folder, engine, [TaskDone(task.task_id, TaskState.FINISHED, outcome, task.name)]
            )
    with open_journal(folder) as journal:
        engine = await journal.recover(two_steps(twice), {})
        assert engine.engine.outputs() == {"results": [3, 4]}
        assert not journal.has_rest, "each was taken once"


async def test_files_of_an_earlier_version_are_not_looked_at(tmp_path: Path) -> None:
    """As after a crash before they were removed."""
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT) as journal:
        engine = await journal.recover(doubles(3), {})
        await write(journal, folder, engine, extract(engine))
    before = files(folder)[0].read_bytes()
    with open_journal(folder, changed=True) as journal:
        await journal.recover(doubles(3), {})
    (folder / "earlier.000001").write_bytes(before)
    (folder / "earlier.000002").write_bytes(b"something else")
    with open_journal(folder, changed=True) as journal:
        found = await journal.compare(doubles(3), {})
        assert [(one.kept, one.dropped) for one in found.transitions] == [(3, 0)]


async def test_only_so_many_bytes_of_before_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gspc_trio.records.shell.journal_files.EARLIER_BYTES_MAX", 4_000)
    folder = tmp_path / "j"
    with create_journal(folder, ABOUT, file_bytes_max=300) as journal:
        engine = await journal.recover(doubles(100), {})
        await write(journal, folder, engine, extract(engine))
    assert 0 < sum(path.stat().st_size for path in folder.glob("earlier.*")) <= 4_000


async def test_what_was_put_is_on_disk_when_the_journal_says_so(tmp_path: Path) -> None:
    net = pipeline(double, is_open=True)
    with create_journal(tmp_path / "j", ABOUT) as journal:
        engine = (await journal.recover(net, {})).engine
        await journal.wait_noted()  # nobody writes yet, so nothing is waited for
        async with trio.open_nursery() as nursery:
            await nursery.start(_run, journal)
            for number in range(3):
                engine.put("items", [number])
                await journal.wait_noted()
                shutil.copytree(tmp_path / "j", tmp_path / str(number))
            nursery.cancel_scope.cancel()
    for number in range(3):
        with open_journal(tmp_path / str(number)) as copy:
            again = await copy.recover(net, {})
            assert again.engine.ports.received == {"items": number + 1}


async def _run(journal: Journal, task_status: Any) -> None:
    task_status.started()
    await journal.run(lambda _: None)


async def test_a_job_that_was_ended_by_a_token_ends_again_when_it_is_resumed(tmp_path: Path) -> None:
    net = Net("said")
    net.input("words", is_open=True)
    net.output("said")
    net.transition("say", None, ["words"], ["said"])
    async with open_rts(cores=1) as rts:
        with create_journal(tmp_path / "j", ABOUT) as journal:
            async with open_job(net, rts=rts, journal=journal) as job:
                job.put("words", ["yes"])
                job.close()
                assert await job.wait_outputs() == {"said": ["yes"]}
        with trio.fail_after(HANG_S), open_journal(tmp_path / "j") as journal:
            async with open_job(net, rts=rts, journal=journal) as job:
                assert await job.wait_outputs() == {"said": ["yes"]}


async def test_a_credential_of_a_setting_is_not_in_the_journal_nor_where_values_have_it(
    tmp_path: Path,
) -> None:
    folder, setting = tmp_path / "j", "uri=s3://me:topsecret@h/x"
    about = replace(ABOUT, settings=(setting,))
    with create_journal(folder, about) as journal:
        engine = await journal.recover(farm(double), {"items": [setting, "topsecret"]})
        await write(journal, folder, engine, extract(engine)[:1])
        journal.read_again()
        engine = await journal.recover(farm(double), {"items": []})
        before = engine.snapshot()
    assert repr(before).count("topsecret") == 1  # the other task has its result
    assert not any(b"topsecret" in file.read_bytes() for file in folder.iterdir())
    with open_journal(folder, given=(setting,)) as journal:
        assert journal.about.settings == ("uri=s3://me:***@h/x",)
        again = await journal.recover(farm(double), {"items": []})
        assert (again.snapshot(), again.engine.outputs()) == (before, {"results": [1]})


async def test_a_secret_of_a_uri_that_a_workflow_makes_is_beside_the_journal_and_had_again(
    tmp_path: Path,
) -> None:
    folder, uri = tmp_path / "j", "https://h/x?sig=topsecret"
    with create_journal(folder, ABOUT) as journal:
        engine = await journal.recover(farm(double), {"items": [uri, uri]})
        await write(journal, folder, engine, extract(engine)[:1])
        journal.read_again()
        before = (await journal.recover(farm(double), {"items": []})).snapshot()
    assert "topsecret" in repr(before)
    assert not any(b"topsecret" in file.read_bytes() for file in files(folder))
    assert (folder / "secrets").stat().st_mode & 0o777 == 0o600
    with open_journal(folder) as journal:
        again = await journal.recover(farm(double), {"items": []})
        assert (again.snapshot(), again.engine.outputs()) == (before, {"results": [1]})
    (folder / "secrets").unlink()
    with (
        pytest.raises(JournalError, match=r"passwords of URIs .* in its file secrets"),
        open_journal(folder),
    ):
        pass
