"""The house rules on imports, read off the source."""

import ast
import subprocess
import sys
from pathlib import Path

import firma
from firma.methods import METHODS

SOURCE = Path(firma.__file__).parent
# Rooms from the ground up: a module may import from its own room and from rooms named before it.
FLOORS = [
    ("errors",), ("atomic_files", "methods"),
    ("settings", "seeds", "metrics", "statistics", "method_descriptions", "method_lookup"),
    ("tasks", "graphs"),
    ("encoding", "schedule"),
    ("protocol",), ("mixing",), ("models",), ("data",), ("run_facts", "ring_cost"), ("training",), ("algorithms",),
    ("attacks", "privacy", "topologies"), ("engines",), ("live_log",),
    ("results", "run_config"), ("comparison", "progress", "tracking", "flower"), ("page",), ("peer",),
    ("experiment", "trained"), ("export",), ("sweep",), ("report",), ("paper",), ("cli",), ("__main__",),
]  # fmt: skip
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}
ENGINES_ONLY = {"ray", "grpc", "asyncio", "threading", "multiprocessing", "concurrent"}


def modules():
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts != ("__init__",):
            yield parts[0], path


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_every_room_has_a_floor():
    assert {room for room, _ in modules()} <= set(LEVEL)


def test_imports_point_one_way():
    for room, path in modules():
        for name in imported(path):
            if name.startswith("firma."):
                target = name.split(".")[1]
                assert target == room or LEVEL[target] < LEVEL[room], f"{path.name} imports {name}"


def test_methods_is_standard_library_only():
    names = {name.split(".")[0] for name in imported(SOURCE / "methods.py")} - {"firma"}
    assert names <= set(sys.stdlib_module_names)


def test_concurrency_lives_in_engines_peer_and_page():
    for room, path in modules():
        found = {name.split(".")[0] for name in imported(path)} & ENGINES_ONLY
        assert room in ("engines", "peer", "page") or not found, f"{path} imports {found}"


PURE = (
    "peer/membership",
    "peer/runtime/machine",
    "peer/runtime/member_machine.py",
    "peer/runtime/events.py",
    "peer/runtime/admission.py",
)
IMPURE = {
    "threading",
    "time",
    "socket",
    "grpc",
    "pathlib",
    "os",
    "asyncio",
    "concurrent",
    "secrets",
    "subprocess",
    "queue",
}


def pure_modules():
    for place in PURE:
        found = [SOURCE / place] if place.endswith(".py") else sorted((SOURCE / place).glob("*.py"))
        assert found
        yield from found


def test_a_members_machine_has_no_clock_threads_sockets_disk_or_chance_of_its_own():
    """Randomness is a `random.Random` that is handed in: the class may be named, but not called."""
    for path in pure_modules():
        tree = ast.parse(path.read_text())
        assert not {name.split(".")[0] for name in imported(path)} & IMPURE, path
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert "random" not in {alias.name for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom) and node.module == "random":
                assert {alias.name for alias in node.names} == {"Random"}, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("Random", "open", "print", "input"), path


def test_the_rooms_of_peer_import_one_way():
    """wire and membership know neither transport nor runtime, and transport does not know runtime."""
    above = {"wire": {"transport", "runtime"}, "membership": {"transport", "runtime"}, "transport": {"runtime"}}
    for room, forbidden in above.items():
        for path in (SOURCE / "peer" / room).glob("*.py"):
            found = {name.split(".")[2] for name in imported(path) if name.startswith("firma.peer.")}
            assert not found & forbidden, path


def test_no_pickle_anywhere():
    """A pickle is a program: who reads one runs it.

    One import is allowed, in data/cifar_pickle.py: the python version of CIFAR-10's official archive is pickled. It is
    read by an unpickler that resolves three names of NumPy to harmless stand-ins and refuses every other.
    """
    modules_that_execute = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
    found = set()
    for _, path in modules():
        names = {name.split(".")[0] for name in imported(path)}
        if names & modules_that_execute:
            found.add(path.relative_to(SOURCE).as_posix())
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert "torch.load" not in text, path
    assert found == {"data/cifar_pickle.py"}


def test_only_the_command_line_prints():
    for room, path in modules():
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert room == "cli" or "print" not in names, path


def test_only_the_command_line_knows_the_paper():
    for room, path in modules():
        names = {name for name in imported(path) if name.startswith("firma.paper")}
        assert room in ("paper", "cli") or not names, f"{path} imports {names}"


def docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


# Ray's own word for a cluster that the process starts.
NOT_A_METHOD = {("engines/ray_cluster.py", "local")}


def test_method_names_stay_in_the_table():
    """Every string constant that is a method's name, changed rows included; docstrings may have them."""
    for room, path in modules():
        if room in ("methods", "method_descriptions", "paper"):
            continue
        tree = ast.parse(path.read_text())
        texts = set(docstrings(tree))
        constants = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in texts}
        found = {value for value in constants if isinstance(value, str) and value.partition(":")[0] in METHODS}
        where = path.relative_to(SOURCE).as_posix()
        assert not {name for name in found if (where, name) not in NOT_A_METHOD}, f"{where}: {found}"


def test_the_facts_of_the_data_sets_load_nothing():
    script = "import sys; from firma.data.catalogue import SIZES; print('numpy' in sys.modules, SIZES['cifar10'].shape)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "False (3, 32, 32)\n"


def test_importing_firma_loads_neither_torch_nor_numpy():
    script = (
        "import sys, firma; print(*(int(m in sys.modules) for m in ('torch', 'numpy')), firma.METHODS['fibfl'].gate)"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["0", "0", "no"]


def test_every_promised_name_is_there():
    for name in firma.__all__:
        assert getattr(firma, name) is not None
    assert set(firma.__all__) == set(dir(firma))
