"""A network of namespaces, one for each member, whose cables can be cut, slowed and made to lose packets."""

import os
import subprocess

from .conftest import NAMES
from .slow_wire import SlowWire


def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Network:
    """Namespaces on a bridge in a namespace of its own; nothing outside them is touched."""

    def __init__(self, members):
        tag = f"firma{os.getpid()}"
        self.hub, self.spaces = f"{tag}-hub", {n: f"{tag}-{NAMES[n]}" for n in range(members)}
        self.hosts = [f"10.77.0.{n + 1}" for n in range(members)]
        self._made, self.wire = [], None

    def build(self, delay=0.0, loss=0.0):
        """Cables to a bridge; with delay or loss by netem, or, in a kernel without it, by a wire in user space."""
        self._add(self.hub)
        for space in self.spaces.values():
            self._add(space)
            ip("-n", space, "link", "set", "lo", "up")
        if delay and not self._netem(delay, loss):
            self.wire = SlowWire(self.spaces, self.hosts, delay, loss)
            for number in self.spaces:
                self._address(number)
            return
        ip("-n", self.hub, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.hub, "link", "set", "bridge", "up")
        for number, space in self.spaces.items():
            ip("-n", space, "link", "add", "line", "type", "veth", "peer", "name", f"port{number}", "netns", self.hub)
            self._address(number)
            ip("-n", self.hub, "link", "set", f"port{number}", "master", "bridge", "up")
            if delay:
                self._netem(delay, loss, space, "line")

    def _netem(self, delay, loss, space=None, device="lo"):
        how = ["delay", f"{delay * 1000:g}ms", "loss", f"{loss:.0%}"]
        enter = ["ip", "netns", "exec", space or self.hub, "tc", "qdisc", "add", "dev", device, "root", "netem"]
        return subprocess.run([*enter, *how], check=False, capture_output=True).returncode == 0

    def _address(self, number):
        ip("-n", self.spaces[number], "addr", "add", f"{self.hosts[number]}/24", "dev", "line")
        ip("-n", self.spaces[number], "link", "set", "line", "up")

    def _add(self, space):
        ip("netns", "add", space)
        self._made.append(space)

    def plug(self, number, state):
        """A member's only cable, `up` or `down`."""
        ip("-n", self.hub, "link", "set", f"port{number}", state)

    def cut(self, one, two):
        ip("-n", self.spaces[one], "route", "add", "blackhole", f"{self.hosts[two]}/32")

    def mend(self, one, two):
        ip("-n", self.spaces[one], "route", "del", "blackhole", f"{self.hosts[two]}/32")

    def remove(self):
        if self.wire is not None:
            self.wire.close()
        for space in self._made:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
