"""The house rules on imports, read off the source."""

import ast
import subprocess
import sys
from pathlib import Path

import firma

SOURCE = Path(firma.__file__).parent
# Rooms from the ground up: a module may import from its own room and from rooms named before it.
FLOORS = [
    ("errors", "atomic_files"), ("methods",), ("encoding", "settings", "seeds", "metrics"), ("schedule",),
    ("protocol",), ("mixing",), ("models",), ("data",), ("ring_report",), ("training",), ("privacy",), ("engines",),
    ("results",), ("peer",), ("assembly",), ("experiment",), ("study",), ("report",), ("cli",), ("__main__",),
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


def test_concurrency_lives_in_engines_and_peer():
    for room, path in modules():
        found = {name.split(".")[0] for name in imported(path)} & ENGINES_ONLY
        assert room in ("engines", "peer") or not found, f"{path} imports {found}"


PURE = ("peer/membership", "peer/runtime/member.py", "peer/runtime/events.py", "peer/runtime/inbox.py")
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
    for _, path in modules():
        assert not {"dill", "cloudpickle", "marshal", "shelve"} & set(imported(path)), path
        assert "allow_pickle=True" not in path.read_text()


def test_only_the_command_line_prints():
    for room, path in modules():
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert room == "cli" or "print" not in names, path


def test_method_names_stay_in_the_table():
    names = {"local", "fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++"}
    for room, path in modules():
        if room in ("methods", "cli", "report"):
            continue
        compared = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Compare)]
        constants = {c.value for n in compared for c in ast.walk(n) if isinstance(c, ast.Constant)}
        assert not constants & names, path


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
