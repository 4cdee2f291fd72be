"""An executor in a notebook, which nbclient runs in a kernel of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CELLS = (
    "from gspc_trio import Executor\n\nexecutor = Executor(cores=2)",
    "scale = 3\n\ndef times(number):\n    print(f'task {number}')\n    return scale * number",
    "list(executor.map(times, range(3)))",
    "scale = 10\nexecutor.submit(times, 4).result()",
    "import asyncio\n\nawait asyncio.wrap_future(executor.submit(times, 5))",
)

HELD = """
import os, signal, sys, threading
from concurrent.futures import as_completed, wait

def held(path):
    return open(path).read()  # of a pipe: when something was written

def start():
    return [executor.submit(held, "never") for _ in range(3)]

def is_waiting(thread_id):
    frame = sys._current_frames()[thread_id]
    while frame is not None and not frame.f_code.co_filename.endswith("futures/_base.py"):
        if frame.f_code.co_name == "_wait":
            return True
        frame = frame.f_back
    return frame is not None

def interrupt_when_it_waits():
    thread_id, interrupts = threading.get_ident(), []

    def raise_once(*_):
        interrupts.append(1)
        if len(interrupts) == 1:
            raise KeyboardInterrupt

    def interrupt():  # again and again: a wait that begins just then does not see the signal
        while not interrupts:
            if is_waiting(thread_id):
                os.kill(os.getpid(), signal.SIGINT)
            os.sched_yield()

    signal.signal(signal.SIGINT, raise_once)
    threading.Thread(target=interrupt).start()

for name in ("end", "never"):
    os.mkfifo(name)
kept = executor.submit(held, "end")
"""

WAYS = (
    "mine[1].result()",
    "list(executor.map(held, ['never'] * 3, show_progress=True))",
    "wait(mine)",
    "list(as_completed(mine))",
)
"""How a cell waits that is interrupted."""

INTERRUPTED = """
mine = start()
interrupt_when_it_waits()
{}
"""

AWAIT = """
mine = start()
asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
await asyncio.wrap_future(mine[1])
"""

STATE = "[future.cancelled() for future in mine], kept.done()"

END = """
with executor.progress("<b>end"), open("end", "w") as pipe:
    pipe.write("kept")
    pipe.close()
    kept.result()
"""

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
    interrupted = [*(INTERRUPTED.format(way) for way in WAYS), AWAIT]
    after = [cell for one in interrupted for cell in (one, STATE)]
    sources = [*CELLS, HELD, *after, END, "kept.result()", "executor", "executor.shutdown()"]
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=HANG_S, kernel_name="python3", resources=resources, allow_errors=True
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    results = [output.data["text/plain"] for output in outputs if output.output_type == "execute_result"]
    only_its_own = "([True, True, True], False)"
    assert results[:-1] == ["[0, 3, 6]", "40", "50", *[only_its_own] * len(interrupted), "'kept'"]
    errors = [output.ename for output in outputs if output.output_type == "error"]
    assert errors == ["KeyboardInterrupt"] * len(WAYS) + ["CancelledError"]
    printed = [
        sorted("".join(it.text for it in cell.outputs if it.output_type == "stream").splitlines())
        for cell in notebook.cells
    ]
    lines = [f"[times {task}] task {number}" for task, number in enumerate((0, 1, 2, 4, 5), 1)]
    assert [one for one in printed if one] == [lines[:3], lines[3:4], lines[4:]]
    of_map, of_block = (output.data for output in outputs if output.output_type == "display_data")
    assert re.match(r"held, \d of \d tasks", of_map["text/plain"])
    assert re.match(r"<b>end, \d of \d tasks", of_block["text/plain"])
    assert re.search(r"> &lt;b&gt;end, \d of \d tasks", of_block["text/html"])
    assert "6 finished" in outputs[-1].data["text/html"]
