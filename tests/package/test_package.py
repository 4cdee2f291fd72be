"""The source distribution builds the wheel, and both install where there is nothing but Python.

It needs an index of packages, or a cache of pip that has what gspc-trio needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
from configparser import ConfigParser
from email.parser import HeaderParser
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"gspc_trio-{PROJECT['version']}"
METADATA = f"{NAME}.dist-info"
BARE = {"PATH": os.defpath, "LANG": "C.UTF-8"}
HANG_S = 600


def run(*command: str | Path, folder: Path) -> str:
    """Run a command that knows nothing of this repository; return what it printed."""
    home = os.environ.get("HOME", "/")  # of pip's cache and settings
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**BARE, **pip, "HOME": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def tracked(*folders: str) -> set[str]:
    """Return the files of these folders that belong to the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *folders]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in found.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a source distribution of this repository, and a wheel for which there was nothing else."""
    if not os.environ.get("GSPC_PACKAGE"):
        pytest.skip("distributions are built by: make package")
    if not find_spec("hatchling"):
        pytest.skip("pip install hatchling")
    if not (ROOT / ".git").exists():
        pytest.skip("only a repository tells which files belong to it")
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder], cwd=ROOT, check=True
    )
    source = folder / f"{NAME}.tar.gz"
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, source, folder=folder)
    return source, folder / f"{NAME}-py3-none-any.whl"


def test_the_source_distribution_has_what_it_takes_to_work_on_it(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as packed:
        names = {name.removeprefix(f"{NAME}/") for name in packed.getnames()}
    assert tracked() - names == set()
    assert names - tracked() == {"PKG-INFO"}


def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with ZipFile(built[1]) as packed:
        names = set(packed.namelist())
        about = HeaderParser().parsestr(packed.read(f"{METADATA}/METADATA").decode())
        entry_points = ConfigParser(delimiters=["="])
        entry_points.read_string(packed.read(f"{METADATA}/entry_points.txt").decode())
        license_text = packed.read(f"{METADATA}/licenses/LICENSE")
    own = {
        f"{METADATA}/{name}"
        for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }
    assert names == tracked("gspc_trio") | own
    assert "gspc_trio/py.typed" in names
    assert license_text == (ROOT / "LICENSE").read_bytes()
    assert (about["License-Expression"], about["License-File"]) == ("Apache-2.0", "LICENSE")
    assert (about["Version"], about["Requires-Python"]) == (PROJECT["version"], ">=3.11")
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert dict(entry_points["console_scripts"]) == PROJECT["scripts"]


@pytest.mark.process
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_it_installs_and_runs_where_there_is_only_python(
    kind: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    source, wheel = built
    venv.create(tmp_path / "venv", with_pip=True)
    bin_folder = tmp_path / "venv" / "bin"
    run(
        bin_folder / "python",
        "-m",
        "pip",
        "install",
        "-q",
        source if kind == "sdist" else wheel,
        folder=tmp_path,
    )
    run(bin_folder / "python", "-m", "pip", "check", folder=tmp_path)
    (tmp_path / "wordcount.py").write_bytes((ROOT / "examples" / "wordcount.py").read_bytes())
    printed = run(bin_folder / "gspc-jobserver", "run", "wordcount.py", folder=tmp_path)
    assert " tasks in " in printed.splitlines()[-1]
    for command in PROJECT["scripts"]:
        assert PROJECT["version"] in run(bin_folder / command, "--version", folder=tmp_path)
    where = run(bin_folder / "python", "-c", "import gspc_trio; print(gspc_trio.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
