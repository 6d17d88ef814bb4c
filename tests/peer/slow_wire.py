"""A bad network in user space, for kernels without netem: packets between namespaces come late or not at all.

Every namespace gets a TUN device; a thread moves packets between them by their destination.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time

from .crew import enter_namespace

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def open_tun(space, name):
    """A TUN device in another namespace; only a thread that ends at once goes there."""
    opened = []

    def go():
        enter_namespace(space)
        handle = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        opened.append(handle)
        fcntl.ioctl(handle, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))

    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
    return opened[0]


class SlowWire:
    """Moves IPv4 packets with `delay` seconds and drops a share `loss` of them."""

    def __init__(self, spaces, hosts, delay, loss):
        self._handles = {number: open_tun(space, "line") for number, space in spaces.items()}
        self._by_host = {bytes(map(int, host.split("."))): self._handles[n] for n, host in enumerate(hosts)}
        self._delay, self._loss, self._dice, self._stop = delay, loss, random.Random(5), threading.Event()
        self.moved = self.dropped = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        late, count = [], 0
        while not self._stop.is_set():
            pause = max(0.0, late[0][0] - time.monotonic()) if late else 0.05
            for handle in select.select(list(self._handles.values()), [], [], min(pause, 0.05))[0]:
                packet = os.read(handle, 65536)
                if packet[0] >> 4 == 4 and packet[16:20] in self._by_host:
                    self.moved += 1
                    if self._dice.random() < self._loss:
                        self.dropped += 1
                        continue
                    count += 1
                    heapq.heappush(late, (time.monotonic() + self._delay, count, packet))
            while late and late[0][0] <= time.monotonic():
                packet = heapq.heappop(late)[2]
                os.write(self._by_host[packet[16:20]], packet)

    def close(self):
        self._stop.set()
        self._thread.join()
        for handle in self._handles.values():
            os.close(handle)
