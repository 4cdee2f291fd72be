"""An executor in a notebook, which nbclient runs in a kernel of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

CELLS = (
    "from gspc_trio import Executor\n\nexecutor = Executor(cores=1)",
    "scale = 3\n\ndef times(number):\n    print(f'task {number}')\n    return scale * number",
    "list(executor.map(times, range(3)))",
    "scale = 10\nexecutor.submit(times, 4).result()",
    "import asyncio\n\nawait asyncio.wrap_future(executor.submit(times, 5))",
    "executor.shutdown()",
)
HANG_S = 100


@pytest.mark.process
@pytest.mark.filterwarnings("ignore")  # of others: kernels and their clients
def test_cells_see_results_and_what_tasks_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "pip install nbclient ipykernel"
    nbclient = pytest.importorskip("nbclient", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    from nbformat import v4

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=HANG_S, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    results = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    assert results == ["[0, 3, 6]", "40", "50"]
    printed = [
        sorted("".join(it.text for it in cell.outputs if it.output_type == "stream").splitlines())
        for cell in notebook.cells
    ]
    lines = [f"[times {task}] task {number}" for task, number in enumerate((0, 1, 2, 4, 5), 1)]
    assert printed == [[], [], lines[:3], lines[3:4], lines[4:], []]
