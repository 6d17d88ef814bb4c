"""What the Tab key offers."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import contextlib, io, json, os, sys
from firma.cli import main
sys.argv = ["firma"]
os.environ["_FIRMA_COMPLETE"] = "complete_bash"
found = []
for line in json.loads(sys.stdin.read()):
    words = line.split(" ")
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = line, str(len(words) - 1)
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main()
    found.append(said.getvalue().split())
print(json.dumps([found, [name for name in ("torch", "numpy", "matplotlib") if name in sys.modules]]))
"""


def test_commands_options_and_values_are_completed_without_loading_torch():
    from firma.cli import COMMANDS
    from firma.methods import METHODS
    from firma.models.catalogue import MODELS

    expected = {
        "firma ": [*COMMANDS],
        "firma re": ["reproduce", "report", "restore"],
        "firma acc": ["accept"],
        "firma data ": ["get", "list"],
        "firma run --te": ["--tensorboard"],
        "firma run --preset ": ["recommended", "paper", "published"],
        "firma run --engine ": ["simulation", "ray"],
        "firma run --wire int": ["int8"],
        "firma run --backend ": ["auto", "autograd"],
        "firma run --device c": ["cpu", "cuda"],
        "firma run --model ": [*MODELS],
        "firma sweep grid.toml --engine ": ["simulation", "ray"],
        "firma run --dataset ": ["digits", "mnist", "fashion-mnist", "cifar10"],
        "firma run --dataset my-file": [],  # the shell completes files
        "firma run --scenario dir": ["dir-0.1", "dir-0.5"],
        "firma run --method ": [*METHODS, "all", "paper"],
        "firma run --set init": ["initial=shared", "initial=per-client"],
        "firma ring --method fibfl+": ["fibfl+", "fibfl++"],
        "firma split --set rat": ["rate=0.01"],
        "firma reproduce --preset p": ["paper", "published"],
        "firma join ring.toml --wire b": ["bfloat16"],
        "firma data get m": ["mnist"],
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=json.dumps([*expected]), capture_output=True, text=True, check=True
    )
    found, loaded = json.loads(done.stdout)
    assert dict(zip(expected, found, strict=True)) == expected
    assert loaded == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script_that_firma_prints(tmp_path):
    script = tmp_path / "firma"
    script.write_text(f"#!{sys.executable}\nfrom firma.cli import main\nmain()\n")
    script.chmod(0o755)
    line = (
        'eval "$(firma --show-completion bash)"; COMP_WORDS=(firma run --preset pa); COMP_CWORD=3; '
        '_firma_completion firma; echo "${COMPREPLY[@]}"; complete -p firma'
    )
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    env |= {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent / "src"), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(["bash", "--norc", "-c", line], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines()[0] == "paper"
    assert "-F _firma_completion firma" in done.stdout
