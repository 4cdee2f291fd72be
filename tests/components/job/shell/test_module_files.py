"""Python files with the functions of modules: the one beside a workflow file, or one that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gspc_trio.components.job.shell.workflow_file import (
    LoadedWorkflow,
    Reading,
    WorkflowFileError,
    load_workflow_file,
)
from gspc_trio.workflow.formats.format import FormatError

NET = """<defun name="one"><out name="b" type="int" place="b"/><net>
<place name="a" type="int"><token><value>1</value></token></place><place name="b" type="int"/>
<transition name="step">
  <defun><in name="x" type="int"/><out name="y" type="int"/><module name="m" function="y work (x)"/></defun>
  <connect-in port="x" place="a"/><connect-out port="y" place="b"/>
</transition></net></defun>
"""


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.xpnet"
    path.write_text(NET)
    return path


def result(loaded: LoadedWorkflow) -> object:
    run = loaded.workflow.net.transitions["step"].run
    return run(1)


def test_the_file_of_the_same_name_beside_has_the_modules(tmp_path: Path) -> None:
    path = written(tmp_path, "modules_beside_a_net")
    with pytest.raises(FormatError, match=r"give a function work \(x\) in .*modules_beside_a_net.py"):
        load_workflow_file(path, [])
    path.with_suffix(".py").write_text("def work(x):\n    return x + 1\n")
    loaded = load_workflow_file(path, [])
    assert result(loaded) == {"y": 2}
    assert "modules_beside_a_net" in loaded.modules  # the hosts get it


def test_the_file_that_the_user_names_comes_first(tmp_path: Path) -> None:
    path = written(tmp_path, "modules_named_by_users")
    path.with_suffix(".py").write_text("def work(x):\n    return x + 1\n")
    other = tmp_path / "other_modules_of_a_net.py"
    other.write_text("def work(x):\n    return x + 10\n")
    loaded = load_workflow_file(path, [], Reading(modules=str(other)))
    assert result(loaded) == {"y": 11}
    with pytest.raises(WorkflowFileError, match=r"there is no file of modules .*none.py"):
        load_workflow_file(path, [], Reading(modules=str(tmp_path / "none.py")))


def test_modules_are_not_for_workflow_files_in_python(tmp_path: Path) -> None:
    path = tmp_path / "flow_without_modules.py"
    path.write_text("")
    with pytest.raises(WorkflowFileError, match=r"--no-compile is not for .*flow_without_modules.py"):
        load_workflow_file(path, [], Reading(no_compile=True))


def test_a_link_to_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"x")
    (tmp_path / "link.py").symlink_to(tmp_path / "data.bin")
    with pytest.raises(WorkflowFileError, match=r"data\.bin is not a workflow file: a Python file is wanted"):
        load_workflow_file(tmp_path / "link.py", [])
