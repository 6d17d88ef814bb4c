"""Waiting for what can be seen, and child processes that never outlive their test."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any


def wait_until(condition: Callable[[], Any], seconds: float, what: str | Callable[[], str]) -> Any:
    """The first true value of `condition`; fails with `what` when there is none within `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.02)
    return value


def assert_holds(condition: Callable[[], Any], seconds: float, what: str) -> None:
    """`condition` is true for all of `seconds`; for things that must not happen, which only time can show."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), what
        time.sleep(0.02)


@contextmanager
def running(
    command: Sequence[Any],
    stdin: Any = subprocess.DEVNULL,
    stdout: Any = None,
    stderr: Any = None,
    env: Mapping[str, str] | None = None,
    cwd: Any = None,
) -> Iterator[subprocess.Popen[str]]:
    """A child in a process group of its own; when the block is left, the group is killed and the pipes are closed.

    It does not read this terminal, whose foreground it is not.
    """
    process = subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, text=True, process_group=0
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # the whole group: a killed child may leave children of its own behind
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # something was written that nobody read
                    pipe.close()
        process.wait(timeout=60)
