"""What goes wrong in a workflow file is told with the place in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gspc_trio.cli.common import run_command
from gspc_trio.cli.jobserver import app

FILE = """
import json
from gspc_trio import Workflow, farm

def read(text):
    return json.loads(text)

def workflow():
    return Workflow(farm(read), {"items": read("{'a'}")})
"""


def test_an_error_in_workflow_shows_type_file_line_and_function(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "broken.py"
    path.write_text(FILE)
    with pytest.raises(SystemExit) as ended:
        run_command(app, ["run", str(path)])
    told = capsys.readouterr().err
    assert ended.value.code == 1
    assert told.startswith("gspc-jobserver: JSONDecodeError: Expecting property name")
    assert f'File "{path}", line 9, in workflow' in told
    assert f'File "{path}", line 6, in read' in told
    assert "gspc_trio/" not in told
