"""Training of plain stacks by the compiled kernels: the fast backend on a CPU."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.schedule import Phase
from firma.training import kernels, tiles
from firma.training.backend import Block, Stack
from firma.training.local_step import FIRST, SECOND, STEPS, Adam, Client, Job, Update, phase_orders

Floats = NDArray[np.float32]
_CHUNK = 256  # samples per forward pass without gradients
_LINE = 16  # floats in a cache line
_NO_FLOATS, _NO_BYTES = np.empty((0, 0), np.float32), np.empty((0, 0), np.uint8)


class CompiledTrainer:
    """A stack's tables and one worker's space; the client's own buffers are trained in place."""

    def __init__(self, stack: Stack, batch: int) -> None:
        self._layout = stack.layout
        self._table, self._epsilons, self._places, space = _tables(stack.blocks, max(batch, _CHUNK))
        self._head = self._table[-1:].copy()
        self._work = _aligned(space)
        self._scratch = [_aligned(stack.layout.size) for _ in range(2)]

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""
        if job.recipe.persistent:
            first, second, steps = (client.memory[name].numpy() for name in (FIRST, SECOND, STEPS))
        else:
            for buffer in self._scratch:
                buffer.fill(0)
            first, second, steps = *self._scratch, np.zeros(2, np.int64)
        for phase in job.phases:
            for orders in phase_orders(len(client.data.labels), phase, job.batch, shuffle):
                self._phase(client, job, phase, orders, first, second, steps)

    def outputs(self, client: Client, test: bool) -> Tensor:
        """(n, K) outputs for the client's test or training samples."""
        inputs = client.data.test_inputs if test else client.data.inputs
        result = np.empty((len(inputs), self._table[-1, kernels.OUTPUTS]), np.float32)
        kernels.outputs(
            client.parameters.numpy(), *_sources(inputs), np.float32(client.data.scale), np.arange(len(inputs)), _CHUNK,
            self._table, self._epsilons, self._work, self._places, result,
        )  # fmt: skip
        return torch.from_numpy(result)

    def _phase(
        self, client: Client, job: Job, phase: Phase, orders: NDArray[np.int64], first: Floats, second: Floats,
        steps: NDArray[np.int64],
    ) -> None:  # fmt: skip
        adam, rate, momentum, decay = _numbers(job.recipe.update)
        labels = client.data.labels.numpy()
        sources, scale = _sources(client.data.inputs), np.float32(client.data.scale)
        table, trained = self._table, len(self._table)
        if phase.trains == "extractor":
            trained -= 1
        elif phase.trains == "head":
            sources, scale = (self._features(client), _NO_BYTES), np.float32(1)
            table, trained = self._head, 1
        kernels.epochs(
            client.parameters.numpy(), first, second, adam, trained, *sources, scale, labels, orders,
            job.batch, table, self._epsilons[-len(table) :], self._work, self._places, rate, momentum, decay,
            steps,
        )  # fmt: skip

    def _features(self, client: Client) -> Floats:
        """The frozen extractor's output: it needs to see the data only once."""
        data, size = client.data, len(client.data.labels)
        result = np.empty((size, self._table[-1, kernels.INPUTS]), np.float32)
        kernels.features(
            client.parameters.numpy(), *_sources(data.inputs), np.float32(data.scale), np.arange(size), _CHUNK,
            self._table, self._epsilons, self._work, self._places, result,
        )  # fmt: skip
        return result


def _numbers(update: Update) -> tuple[bool, float, float, float]:
    """Whether it is Adam, its rate, its momentum and its decay, as the kernel takes them."""
    adam = isinstance(update, Adam)
    return adam, update.rate, 0.0 if isinstance(update, Adam) else update.momentum, update.decay


def _sources(inputs: Tensor) -> tuple[Floats, NDArray[np.uint8]]:
    """(n, d) floats and bytes, one of them empty."""
    flat = inputs.numpy().reshape(len(inputs), -1)
    return (_NO_FLOATS, flat) if flat.dtype == np.uint8 else (flat, _NO_BYTES)


def _tables(blocks: tuple[Block, ...], rows: int) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64], int]:
    """The table of blocks, the epsilons of their norms, the places in the work space, and its size."""
    taken = 0
    rows = -(-rows // tiles.ROWS) * tiles.ROWS  # whole tiles

    def take(size: int) -> int:
        nonlocal taken
        start, taken = taken, taken + -(-size // _LINE) * _LINE
        return start

    table = np.zeros((len(blocks), kernels.COLUMNS), np.int64)
    for line, block in zip(table, blocks, strict=True):
        line[: kernels.NORMED] = (
            block.inputs, block.outputs, block.weight, block.bias, block.gain, block.shift, block.relu,
        )  # fmt: skip
        line[kernels.NORMED] = take(rows * block.outputs) if block.gain >= 0 else 0
        line[kernels.OUT], line[kernels.SCALES] = take(rows * block.outputs), take(rows)
    widest = max(max(block.outputs, block.inputs) for block in blocks[1:])
    widest = max(widest, blocks[0].outputs)
    places = np.zeros(kernels.PLACES, np.int64)
    places[kernels.INPUT] = take(rows * max(blocks[0].inputs, blocks[-1].inputs))
    places[kernels.BACK], places[kernels.BACK_TOO] = take(rows * widest), take(rows * widest)
    places[kernels.PIECE] = take(max(kernels.PIECE_SIZE, widest))
    places[kernels.BLOCKS], places[kernels.PANELS] = (
        take((rows + tiles.UNROLL) * widest),
        take((rows + tiles.UNROLL) * tiles.PANEL),
    )
    places[kernels.PACKED] = take(tiles.DEPTH * tiles.GROUP) if tiles.PRODUCTS else 0
    for place in (kernels.SUM_BIAS, kernels.SUM_GAIN, kernels.SUM_SHIFT):
        places[place] = take(widest)
    return table, np.array([block.epsilon for block in blocks], np.float32), places, taken


def _aligned(size: int) -> Floats:
    """Zeros that start on a cache line."""
    raw = np.zeros(size + _LINE, np.float32)
    skip = (-raw.ctypes.data % (4 * _LINE)) // 4
    return raw[skip : skip + size]
