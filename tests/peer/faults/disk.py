"""A simulated disk: a small file system that says what is left of a folder after a kill, and after a loss of power.

The members' own code writes to it: `promises`, `checkpoint`, `audit_log`, `event_log` and `atomic_files` are the real
modules, which are handed a `SimulatedPath` in place of a `pathlib.Path`. `facades.py` passes their system calls on.

A *kill* ends the process between two system calls; whatever was written stays. A *loss of power* also takes what was
not synced: a file keeps what it had at its last fsync and some first part of what was written since (a torn write), and
of the names that were created, renamed and removed in folders that were not synced, the last ones are forgotten. That
is what POSIX allows, and more than most file systems do.
"""

import copy
import errno
import fnmatch
import io
import itertools
import os
import stat
from dataclasses import dataclass, field
from types import SimpleNamespace


class Killed(BaseException):
    """The process ends here. Not an `Exception`: nothing in the process may catch it."""


@dataclass(eq=False)
class File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""

    def sync(self):
        self.synced = bytes(self.data)

    def lose_power(self, dice):
        kept = len(self.synced) if self.data.startswith(self.synced) else 0
        if self.data != self.synced:
            del self.data[dice.randint(kept, len(self.data)) :]
        self.synced = bytes(self.data)


@dataclass(eq=False)
class Folder:
    """Names as the process sees them, names that are on the disk, and changes that are not: (order, {name: node})."""

    names: dict = field(default_factory=dict)
    durable: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)

    def change(self, order, changes):
        self.pending.append((order, changes))
        self._apply(self.names, changes)

    def sync(self):
        for _, changes in self.pending:
            self._apply(self.durable, changes)
        self.pending.clear()

    @staticmethod
    def _apply(names, changes):
        for name, node in changes.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


class Disk:
    """One member's disk; processes use it through a `Mount` of their own."""

    def __init__(self, dice):
        self.root, self.dice = Folder(), dice
        self.full = False
        self.lost_writes = 0  # in losses of power
        self.order = itertools.count()

    def lose_power(self):
        folders, files = self._nodes()
        pending = sorted(((order, id(each), each, changes) for each in folders for order, changes in each.pending),
                         key=lambda entry: entry[0])  # fmt: skip
        kept = self.dice.randint(0, len(pending))
        for _, _, folder, changes in pending[:kept]:
            folder._apply(folder.durable, changes)
        self.lost_writes += len(pending) - kept + sum(each.data != each.synced for each in files)
        for each in folders:
            each.names, each.pending = dict(each.durable), []
        for each in files:
            each.lose_power(self.dice)

    def _nodes(self):
        """All that is reachable by today's names or by those on the disk."""
        folders, files, seen, todo = [], [], set(), [self.root]
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, File):
                files.append(node)
                continue
            folders.append(node)
            todo += [*node.names.values(), *node.durable.values()]
            todo += [each for _, changes in node.pending for each in changes.values() if each is not None]
        return folders, files

    def snapshot(self):
        return copy.deepcopy(self.root)

    def restore(self, snapshot):
        self.root = copy.deepcopy(snapshot)

    def erase(self):
        self.root = Folder()


class Mount:
    """One process's access to a disk: counts its steps, may end the process at one of them, and ends with it."""

    def __init__(self, disk):
        self.disk, self.dead, self.steps = disk, False, 0
        self.fuse = None  # steps until the process is killed
        self._handles, self._next = {}, itertools.count(1 << 30)

    def step(self):
        """A step that others could see: between two of them the process may be killed."""
        if self.dead:
            raise Killed
        self.steps += 1
        if self.fuse is not None:
            if self.fuse <= 0:
                self.dead = True
                raise Killed
            self.fuse -= 1

    def find(self, parts):
        node = self.disk.root
        for part in parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
            if node is None:
                return None
        return node

    def folder_of(self, parts):
        found = self.find(parts[:-1])
        if not isinstance(found, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
        return found

    def change(self, folder, changes):
        self.step()
        folder.change(next(self.disk.order), changes)

    def write(self, file, raw):
        """Append; returns how much was written. A full disk takes some of it."""
        self.step()
        taken = self.disk.dice.randint(0, len(raw) - 1) if self.disk.full else len(raw)
        file.data += raw[:taken]
        return taken

    def handle(self, node):
        number = next(self._next)
        self._handles[number] = node
        return number

    def fsync(self, handle):
        self.step()
        self._handles[handle].sync()

    def close(self, handle):
        self._handles.pop(handle, None)


class SimulatedPath:
    """As much of `pathlib.Path` as the members' code uses."""

    __slots__ = ("mount", "parts")

    def __init__(self, mount, *parts):
        self.mount, self.parts = mount, parts

    def __truediv__(self, name):
        return SimulatedPath(self.mount, *self.parts, *str(name).split("/"))

    def __str__(self):
        return "/".join(("disk", *self.parts))

    __repr__ = __str__

    def __eq__(self, other):
        return isinstance(other, SimulatedPath) and self.parts == other.parts and self.mount is other.mount

    def __hash__(self):
        return hash(self.parts)

    def __lt__(self, other):
        return self.parts < other.parts

    @property
    def name(self):
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self):
        return SimulatedPath(self.mount, *self.parts[:-1])

    def with_name(self, name):
        return SimulatedPath(self.mount, *self.parts[:-1], name)

    def _node(self):
        found = self.mount.find(self.parts)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return found

    def exists(self):
        return self.mount.find(self.parts) is not None

    def is_dir(self):
        return isinstance(self.mount.find(self.parts), Folder)

    def is_file(self):
        return isinstance(self.mount.find(self.parts), File)

    def stat(self):
        node = self._node()
        kind = stat.S_IFDIR if isinstance(node, Folder) else stat.S_IFREG
        return SimpleNamespace(st_size=0 if isinstance(node, Folder) else len(node.data), st_mode=kind | 0o600)

    def iterdir(self):
        return iter([self / name for name in self._node().names])

    def glob(self, pattern):
        node = self.mount.find(self.parts)
        names = node.names if isinstance(node, Folder) else ()
        return iter([self / name for name in names if fnmatch.fnmatchcase(name, pattern)])

    def rglob(self, pattern):
        node = self.mount.find(self.parts)
        for name in list(node.names) if isinstance(node, Folder) else ():
            each = self / name
            if fnmatch.fnmatchcase(name, pattern):
                yield each
            yield from each.rglob(pattern)

    def read_bytes(self):
        node = self._node()
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self))
        return bytes(node.data)

    def read_text(self, encoding="utf-8"):
        return self.read_bytes().decode(encoding)

    def open(self, mode="r", **_):
        return opened(self, mode)

    def mkdir(self, mode=0o777, parents=False, exist_ok=False):
        for depth in range(1 if parents else len(self.parts), len(self.parts) + 1):
            each = SimulatedPath(self.mount, *self.parts[:depth])
            if not each.exists():
                if self.mount.disk.full:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
                self.mount.change(self.mount.folder_of(each.parts), {each.name: Folder()})
            elif depth == len(self.parts) and not exist_ok:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self))

    def replace(self, target):
        """Rename within one folder, atomically."""
        node, folder = self._node(), self.mount.folder_of(self.parts)
        assert folder is self.mount.folder_of(target.parts)
        there = folder.names.get(target.name)
        if isinstance(there, Folder) and there.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        self.mount.change(folder, {self.name: None, target.name: node})

    rename = replace

    def unlink(self, missing_ok=False):
        if not self.exists() and missing_ok:
            return
        self._node()
        self.mount.change(self.mount.folder_of(self.parts), {self.name: None})

    def rmtree(self, ignore_errors=False):
        """One name after the other, in any order, as `shutil.rmtree` does."""
        node = self.mount.find(self.parts)
        if node is None:
            if ignore_errors:
                return
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        if isinstance(node, Folder):
            names = list(node.names)
            self.mount.disk.dice.shuffle(names)
            for name in names:
                (self / name).rmtree()
        self.mount.change(self.mount.folder_of(self.parts), {self.name: None})


class OpenFile:
    """A file that is open for writing. As in Python, what could not be written stays in the buffer."""

    def __init__(self, path, mode):
        self._mount, self._text, self.closed = path.mount, "b" not in mode, False
        folder, node = path.mount.folder_of(path.parts), path.mount.find(path.parts)
        if node is None:
            node = File()
            path.mount.change(folder, {path.name: node})
        elif "w" in mode:
            path.mount.step()
            node.data.clear()
        self._node, self._buffer, self._handle = node, bytearray(), path.mount.handle(node)

    def write(self, raw):
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        self._buffer += raw.encode() if self._text else raw
        return len(raw)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def tell(self):
        return len(self._node.data) + len(self._buffer)

    def flush(self):
        if self._buffer:
            taken = self._mount.write(self._node, self._buffer)
            del self._buffer[:taken]
            if self._buffer:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fileno(self):
        return self._handle

    def close(self):
        if not self.closed:
            self.closed = True
            self._mount.close(self._handle)
            self.flush()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not Killed:
            self.close()


def opened(path, mode="r", **_):
    """What `open` gives for a simulated path."""
    if "w" in mode or "a" in mode:
        return OpenFile(path, mode)
    raw = path.read_bytes()
    return io.BytesIO(raw) if "b" in mode else io.StringIO(raw.decode())
