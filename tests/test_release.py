"""The wheel and the source distribution: complete, and they work where they are installed, with and without extras."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = ROOT / "constraints.txt"
pytestmark = pytest.mark.skipif(find_spec("build") is None, reason="pip install 'firma[dev]'")


def ran(command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist), the wheel built from the sdist, from a copy of what git has."""
    folder = tmp_path_factory.mktemp("release")
    copy = folder / "source"
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    ran([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", copy])
    (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder with the wheel's contents and nothing else; dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    ran([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder, built[0]])
    return folder


def files_of_the_package():
    found = [
        path
        for path in (ROOT / "src" / "firma").rglob("*")
        if path.suffix in (".py", ".csv", ".typed", ".js", ".css", ".html", ".svg")
    ]
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


def test_both_are_complete(built):
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert files_of_the_package() == {name for name in names if name.startswith("firma/")}
    assert {name.split("/")[0] for name in names} == {"firma", f"firma-{PROJECT['version']}.dist-info"}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in files_of_the_package()} | {"README.md", "LICENSE", "pyproject.toml"} <= inside
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE)) == set(PROJECT["optional-dependencies"])
    assert "Requires-Python: >=3.11" in metadata
    assert "# FIRMA" in metadata  # the README is its description


def python(installed, code, folder):
    """Run code with the installed package in the place of the development's."""
    env = os.environ | {"PYTHONPATH": str(installed), "PYTHONWARNINGS": "error"}
    return ran([sys.executable, "-c", code], cwd=folder, env=env)


# By autograd: kernels of another installation would be compiled anew.
SMALL = ("--method", "local", "--clients", "2", "--rounds", "1", "--set", "epochs=1", "--backend", "autograd")
RUN = """
import sys, firma
assert firma.__file__.startswith({folder!r}), firma.__file__
from firma.cli import main
sys.argv = ["firma", *{words!r}]
main()
"""


def test_commands_of_the_installed_wheel(installed, tmp_path):
    """One process for all of them: most of the time goes to loading torch."""
    commands = [
        ("--version",), ("run", *SMALL), ("advise", "--dataset", "digits", "--scenario", "dir-0.1"),
        ("init", "north", "127.0.0.1:7401"),
    ]  # fmt: skip
    start, call = RUN.format(folder=str(installed), words=()).split("sys.argv")
    code = start + f"for words in {commands!r}:\n    sys.argv = ['firma', *words]\n    try:\n        main()\n"
    said = python(installed, code + "    except SystemExit as end:\n        assert not end.code, words\n", tmp_path)
    assert call
    for words in (f"firma {PROJECT['version']}\n", "local", "fingerprint", "dir-0.1"):
        assert words in said


WITHOUT = """
from importlib.machinery import PathFinder
found = PathFinder.find_spec
def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in {packages!r} else found(name, path, target)
PathFinder.find_spec = classmethod(find_spec)
"""


def test_without_extras(installed, tmp_path):
    """A run needs none of them, and the commands of a ring say which one to install."""
    packages = (
        "grpc",
        "cryptography",
        "pyarrow",
        "datasets",
        "onnx",
        "onnxscript",
        "ray",
        "tensorboard",
        "mlflow",
        "flwr",
    )
    start = WITHOUT.format(packages=packages)
    words = ("run", *SMALL)
    assert "local" in python(installed, start + RUN.format(folder=str(installed), words=words), tmp_path)
    code = start + RUN.format(folder=str(installed), words=("init", "north", "127.0.0.1:7401"))
    env = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'firma[peer]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extras", ["", "[peer,tables,tensorboard]"])
def test_a_clean_environment(built, tmp_path, extras):
    """Everything resolved and installed by pip, as install.md says; minutes, and it downloads."""
    venv.create(tmp_path / "env", with_pip=True)
    bin_folder = tmp_path / "env" / "bin"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran([bin_folder / "pip", "install", "--quiet", "-c", CONSTRAINTS, f"firma{extras} @ file://{built[0]}"], env=env)
    ran([bin_folder / "pip", "check"], env=env)
    words = ["run", "--method", "fibfl", "--clients", "3", "--rounds", "1", "--set", "extractor_epochs=1"]
    assert "fibfl" in ran([bin_folder / "firma", *words], cwd=tmp_path, env=env)
    done = subprocess.run(
        [bin_folder / "firma", "init", "north", "127.0.0.1:7401"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        check=False,
    )
    assert done.returncode == (0 if "peer" in extras else 2)


def test_install_md_lists_every_extra():
    text = (ROOT / "docs" / "install.md").read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert re.search(rf"^\| [^|]*`{extra}`", text, re.MULTILINE), extra
