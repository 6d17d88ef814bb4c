"""Local training of a stack, compiled: a client's epochs are one call that holds no lock on Python.

Products are sgemm's, or made of tiles where those are faster (tiles.py); all between them is written out as loops that
LLVM vectorises. A weight gradient is made piece by piece and used up by the optimiser while it is in the cache, or in
the registers. All floats are float32, and every buffer is flat.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math
import warnings

import llvmlite.binding
import numpy as np
from numba import njit, types

from firma.training import tiles
from firma.training.find_sgemm import sgemm_address

llvmlite.binding.add_symbol("firma_sgemm", sgemm_address())  # by name, so that compiled code can be kept on disk
_sgemm = types.ExternalFunction("firma_sgemm", types.void(*[types.uintp] * 13))
# Sums may be reordered and a·b + c fused; NaN, infinity and division keep their meaning.
# Helpers are inlined, always: compiled by themselves and inside a caller, their sums come out in another order, and
# which of the two a process uses depends on whether it compiled or loaded from disk.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def _compiled(function, forceinline=False):
    """The function, compiled on its first call; kept on disk, in the first of Numba's folders that can be written."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": _FAST, "forceinline": forceinline}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # all of them are read-only, as in many containers
        warnings.warn(
            "compiled kernels cannot be kept on disk, so every process compiles them again, for some 15 seconds; set "
            "NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=1,  # one place, so that it is said once
        )
        return njit(**options)(function)


def _inlined(function):
    return _compiled(function, forceinline=True)


# Columns of the table of blocks: the model, then where a block keeps what the backward pass needs.
INPUTS, OUTPUTS, WEIGHT, BIAS, GAIN, SHIFT, RELU, NORMED, OUT, SCALES, COLUMNS = range(11)
# Places in the work space: input batch, two gradients of activations, piece of a weight gradient, three small sums,
# and packed for tiles: gradients of outputs, a panel of inputs, and weights.
INPUT, BACK, BACK_TOO, PIECE, SUM_BIAS, SUM_GAIN, SUM_SHIFT, BLOCKS, PANELS, PACKED, PLACES = range(11)
PIECE_SIZE = 32768  # floats of a weight gradient at a time: 128 kB, which stay in the second-level cache


@_inlined
def _product(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc, whole, real, letters):
    """c ← a b + beta c on addresses of column-major matrices; the last three are space for the arguments."""
    whole[0], whole[1], whole[2], whole[3], whole[4], whole[5] = m, n, k, lda, ldb, ldc
    real[0], real[1] = 1.0, beta
    i, f, t = whole.ctypes.data, real.ctypes.data, letters.ctypes.data
    _sgemm(t + transpose_a, t + transpose_b, i, i + 4, i + 8, f, a, i + 12, b, i + 16, f + 4, c, i + 20)


@_inlined
def _tiled_product(source, rows, n, weights, width, target, packed):
    """target (rows, width) ← source (rows, n) · weights (n, width), all addresses; the last tile of rows is whole."""
    for k in range(0, n, tiles.DEPTH):
        terms = min(tiles.DEPTH, n - k)
        for group in range(0, width, tiles.GROUP):
            columns = min(tiles.GROUP, width - group)
            start = weights + 4 * (k * width + group)
            for c in range(0, columns, tiles.COLUMNS):
                tiles.pack(start + 4 * c, 4 * width, tiles.VECTORS, terms, packed + 4 * c * terms)
            ahead = start + 4 * tiles.DEPTH * width
            for c in range(0, columns, tiles.COLUMNS):
                for r in range(0, rows, tiles.ROWS):
                    tiles.tile_product(
                        source + 4 * (r * n + k), 4 * n, packed + 4 * c * terms, terms,
                        target + 4 * (r * width + group + c), 4 * width, k, ahead,
                    )  # fmt: skip
                    ahead += 16 * terms


@_inlined
def _tiled_product_back(source, rows, width, weights, n, target, packed):
    """target (rows, n) ← source (rows, width) · weightsᵀ, for weights (n, width); as `_tiled_product`."""
    for k in range(0, width, tiles.DEPTH):
        terms = min(tiles.DEPTH, width - k)
        for c in range(0, n, tiles.COLUMNS):
            tiles.pack_turned(weights + 4 * (c * width + k), 4 * width, terms, packed)
            ahead = weights + 4 * (c + tiles.COLUMNS) * width
            for r in range(0, rows, tiles.ROWS):
                tiles.tile_product(
                    source + 4 * (r * width + k), 4 * width, packed, terms, target + 4 * (r * n + c), 4 * n, k, ahead,
                )  # fmt: skip
                ahead += 16 * terms


# No loop below touches more than four arrays: LLVM then proves them apart and vectorises.


@_inlined
def _activate(out, rows, width, bias, norm, gain, shift, epsilon, relu, normed, scales):
    """out ← relu(norm(out + bias)), row by row in place; keeps the normed rows and their scales."""
    inverse, zero = np.float32(1.0 / width), np.float32(0)
    for i in range(rows):
        row = out[i * width : (i + 1) * width]
        if not norm:
            for j in range(width):
                row[j] += bias[j]
        else:
            kept = normed[i * width : (i + 1) * width]
            total = zero
            for j in range(width):
                value = row[j] + bias[j]
                row[j] = value
                total += value
            mean = total * inverse
            spread = zero
            for j in range(width):
                value = row[j] - mean
                spread += value * value
            scale = np.float32(1.0) / np.float32(math.sqrt(spread * inverse + epsilon))
            scales[i] = scale
            for j in range(width):
                kept[j] = (row[j] - mean) * scale
            for j in range(width):
                row[j] = kept[j] * gain[j] + shift[j]
        if relu:
            for j in range(width):
                row[j] = max(row[j], zero)


@_inlined
def _activate_back(back, rows, width, norm, gain, relu, normed, out, scales, sum_bias, sum_gain, sum_shift):
    """Gradient of a block's output to that of its product, in place; sums are those of bias, gain and shift."""
    inverse, zero = np.float32(1.0 / width), np.float32(0)
    sum_bias[:width] = zero
    sum_gain[:width] = zero
    sum_shift[:width] = zero
    for i in range(rows):
        row = back[i * width : (i + 1) * width]
        if relu:
            after = out[i * width : (i + 1) * width]
            for j in range(width):
                row[j] = row[j] if after[j] > zero else zero
        if norm:
            kept = normed[i * width : (i + 1) * width]
            for j in range(width):
                sum_shift[j] += row[j]
            for j in range(width):
                sum_gain[j] += row[j] * kept[j]
            first, second = zero, zero
            for j in range(width):
                value = row[j] * gain[j]
                row[j] = value
                first += value
                second += value * kept[j]
            first *= inverse
            second *= inverse
            scale = scales[i]
            for j in range(width):
                row[j] = scale * (row[j] - first - kept[j] * second)
        for j in range(width):
            sum_bias[j] += row[j]


@_inlined
def _loss_back(logits, rows, classes, bias, labels, chosen):
    """Logits without bias to the gradient of the mean cross-entropy, (softmax - one-hot) / rows, in place."""
    inverse = np.float32(1.0 / rows)
    for i in range(rows):
        row = logits[i * classes : (i + 1) * classes]
        top = row[0] + bias[0]
        for j in range(classes):
            row[j] += bias[j]
            top = max(top, row[j])
        total = np.float32(0)
        for j in range(classes):
            value = np.float32(math.exp(row[j] - top))
            row[j] = value
            total += value
        factor = inverse / total
        for j in range(classes):
            row[j] *= factor
        row[labels[chosen[i]]] -= inverse


@_inlined
def _adam(parameters, first, second, gradient, rate, root, epsilon, share1, beta2, share2):
    """p ← p - rate · m / (√v · root + ε), with m and v moved first: torch's Adam with its corrections folded in."""
    for j in range(parameters.size):
        g = gradient[j]
        m = first[j] + share1 * (g - first[j])
        v = beta2 * second[j] + share2 * g * g
        first[j] = m
        second[j] = v
        parameters[j] -= rate * m / (np.sqrt(v) * root + epsilon)


@_inlined
def _tiled_update(work, back, rows, width, inputs, n, places, parameters, first, second, adam, numbers, momentum):
    """Moves (n, width) weights at three addresses, tile by tile, the gradient being inputs · back over the batch."""
    base, blocks, panel = work.ctypes.data, places[BLOCKS], places[PANELS]
    filled = -(-rows // tiles.UNROLL) * tiles.UNROLL
    for c in range(0, width, tiles.COLUMNS):
        start = blocks + c * filled
        tiles.pack(base + 4 * (back + c), 4 * width, tiles.VECTORS, rows, base + 4 * start)
        work[start + rows * tiles.COLUMNS : start + filled * tiles.COLUMNS] = np.float32(0)
    work[panel + rows * tiles.PANEL : panel + filled * tiles.PANEL] = np.float32(0)
    for line in range(0, n, tiles.PANEL):
        tiles.pack(base + 4 * (inputs + line), 4 * n, tiles.PANEL // tiles.LANES, rows, base + 4 * panel)
        ahead = base + 4 * (inputs + line + tiles.PANEL)
        for c in range(0, width, tiles.COLUMNS):
            for r in range(0, tiles.PANEL, tiles.ROWS):
                low = 4 * ((line + r) * width + c)
                left, right = base + 4 * (panel + r), base + 4 * (blocks + c * filled)
                if adam:
                    tiles.tile_adam(
                        left, right, filled, ahead, 4 * n, parameters + low, first + low, second + low, 4 * width,
                        *numbers,
                    )  # fmt: skip
                else:
                    tiles.tile_momentum(
                        left, right, filled, ahead, 4 * n, parameters + low, first + low, 4 * width, *momentum
                    )
                ahead += 4 * n * tiles.UNROLL


@_inlined
def _momentum(parameters, velocity, gradient, momentum, rate):
    for j in range(parameters.size):
        v = momentum * velocity[j] + gradient[j]
        velocity[j] = v
        parameters[j] -= rate * v


@_inlined
def _shrink(parameters, kept):
    for j in range(len(parameters)):
        parameters[j] *= kept


@_inlined
def _descend(parameters, velocity, rate):
    for j in range(parameters.size):
        parameters[j] -= rate * velocity[j]


@_inlined
def _gather(floats, stored, scale, chosen, batch):
    """Chosen rows of the data into the batch; bytes are scaled on the way. One of the two sources is empty."""
    if len(stored):
        width = stored.shape[1]
        for i in range(len(chosen)):
            source, target = stored[chosen[i]], batch[i * width : (i + 1) * width]
            for j in range(width):
                target[j] = np.float32(source[j]) * scale
    else:
        width = floats.shape[1]
        for i in range(len(chosen)):  # a loop: assigning slices compiles seconds of code for their error messages
            row, place = floats[chosen[i]], batch[i * width : (i + 1) * width]
            for j in range(width):
                place[j] = row[j]


@_inlined
def _forward(parameters, work, rows, table, epsilons, last, places, whole, real, letters):
    """The batch through blocks [0, last); the head's block keeps its product without bias."""
    base, model = work.ctypes.data, parameters.ctypes.data
    source = places[INPUT]
    for k in range(last):
        b = table[k]
        n, width = b[INPUTS], b[OUTPUTS]
        if tiles.PRODUCTS and width % tiles.COLUMNS == 0 and n % tiles.UNROLL == 0:
            _tiled_product(
                base + 4 * source, rows, n, model + 4 * b[WEIGHT], width, base + 4 * b[OUT], base + 4 * places[PACKED]
            )
        else:
            _product(
                0, 0, width, rows, n, model + 4 * b[WEIGHT], width, base + 4 * source, n, np.float32(0),
                base + 4 * b[OUT], width, whole, real, letters,
            )  # fmt: skip
        if k < len(table) - 1:
            gain, shift = max(b[GAIN], 0), max(b[SHIFT], 0)
            _activate(
                work[b[OUT] : b[OUT] + rows * width], rows, width, parameters[b[BIAS] : b[BIAS] + width], b[GAIN] >= 0,
                parameters[gain : gain + width], parameters[shift : shift + width], epsilons[k], b[RELU] > 0,
                work[b[NORMED] : b[NORMED] + rows * width], work[b[SCALES] : b[SCALES] + rows],
            )  # fmt: skip
        source = b[OUT]


@_compiled
def epochs(  # noqa: PLR0912, PLR0915  # one call for all epochs is the point
    parameters, first, second, adam, trained, floats, stored, scale, labels, orders, batch, table, epsilons, work,
    places, rate, momentum, decay, steps,
):  # fmt: skip
    """Train blocks [0, trained) in place over `orders` (epochs, n).

    `steps` holds the Adam steps that the blocks before the last, and the last, have taken; it is moved on.
    """
    whole, real = np.zeros(6, np.int32), np.zeros(2, np.float32)
    letters = np.array([78, 84], np.uint8)  # N and T
    base, model, moving = work.ctypes.data, parameters.ctypes.data, first.ctypes.data
    squares = second.ctypes.data
    depth = len(table)
    slow, mu, kept = np.float32(rate), np.float32(momentum), np.float32(1.0 - rate * decay)
    share1, beta2, share2, tiny = np.float32(1 - 0.9), np.float32(0.999), np.float32(1 - 0.999), np.float32(1e-8)
    corrected, roots = np.zeros(2, np.float32), np.zeros(2, np.float32)
    start_input, width_input = places[INPUT], table[0, INPUTS]
    for e in range(len(orders)):
        for begin in range(0, orders.shape[1], batch):
            chosen = orders[e, begin : begin + batch]
            rows = len(chosen)
            _gather(floats, stored, scale, chosen, work[start_input : start_input + rows * width_input])
            _forward(parameters, work, rows, table, epsilons, depth, places, whole, real, letters)
            for part in range(2):
                if (part == 0 and depth > 1) or (part == 1 and trained == depth):
                    steps[part] += 1
                corrected[part] = rate / (1.0 - 0.9 ** max(steps[part], 1))
                roots[part] = 1.0 / math.sqrt(1.0 - 0.999 ** max(steps[part], 1))
            b = table[depth - 1]
            here, there = b[OUT], places[BACK]
            classes = b[OUTPUTS]
            _loss_back(
                work[here : here + rows * classes],
                rows,
                classes,
                parameters[b[BIAS] : b[BIAS] + classes],
                labels,
                chosen,
            )
            for k in range(depth - 1, -1, -1):
                b = table[k]
                n, width = b[INPUTS], b[OUTPUTS]
                part = 1 if k == depth - 1 else 0
                sum_bias = work[places[SUM_BIAS] : places[SUM_BIAS] + width]
                sum_gain = work[places[SUM_GAIN] : places[SUM_GAIN] + width]
                sum_shift = work[places[SUM_SHIFT] : places[SUM_SHIFT] + width]
                gain, shift = max(b[GAIN], 0), max(b[SHIFT], 0)
                if k < depth - 1 or k < trained:
                    _activate_back(
                        work[here : here + rows * width], rows, width, b[GAIN] >= 0, parameters[gain : gain + width],
                        b[RELU] > 0, work[b[NORMED] : b[NORMED] + rows * width], work[b[OUT] : b[OUT] + rows * width],
                        work[b[SCALES] : b[SCALES] + rows], sum_bias, sum_gain, sum_shift,
                    )  # fmt: skip
                if k:  # the gradient of the block's input, before its weights move
                    if tiles.PRODUCTS and n % tiles.COLUMNS == 0 and width % tiles.LANES == 0:
                        _tiled_product_back(
                            base + 4 * here, rows, width, model + 4 * b[WEIGHT], n, base + 4 * there,
                            base + 4 * places[PACKED],
                        )  # fmt: skip
                    else:
                        _product(
                            1, 0, n, rows, width, model + 4 * b[WEIGHT], width, base + 4 * here, width, np.float32(0),
                            base + 4 * there, n, whole, real, letters,
                        )  # fmt: skip
                if k < trained:
                    if decay > 0:
                        _shrink(parameters[b[WEIGHT] : b[WEIGHT] + n * width], kept)
                        _shrink(parameters[b[BIAS] : b[BIAS] + width], kept)
                        if b[GAIN] >= 0:
                            _shrink(parameters[gain : gain + width], kept)
                            _shrink(parameters[shift : shift + width], kept)
                    before = table[k - 1, OUT] if k else start_input
                    source = base + 4 * before
                    fits = width % tiles.COLUMNS == 0 and n % tiles.PANEL == 0
                    tiled = fits and (tiles.PRODUCTS or (tiles.TILED and adam))
                    if tiled:
                        numbers = (corrected[part], roots[part], tiny, share1, beta2, share2)
                        _tiled_update(
                            work, here, rows, width, before, n, places, model + 4 * b[WEIGHT], moving + 4 * b[WEIGHT],
                            squares + 4 * b[WEIGHT], adam, numbers, (slow, mu),
                        )  # fmt: skip
                    lines = max(1, PIECE_SIZE // width)
                    for line in range(n if tiled else 0, n, lines):
                        count = min(lines, n - line)
                        low = b[WEIGHT] + line * width
                        high = low + count * width
                        if adam:
                            _product(
                                0, 1, width, count, rows, base + 4 * here, width, source + 4 * line, n, np.float32(0),
                                base + 4 * places[PIECE], width, whole, real, letters,
                            )  # fmt: skip
                            _adam(
                                parameters[low:high], first[low:high], second[low:high],
                                work[places[PIECE] : places[PIECE] + count * width], corrected[part], roots[part], tiny,
                                share1, beta2, share2,
                            )  # fmt: skip
                        else:  # the product itself moves the velocity
                            _product(
                                0, 1, width, count, rows, base + 4 * here, width, source + 4 * line, n, mu,
                                moving + 4 * low, width, whole, real, letters,
                            )  # fmt: skip
                            _descend(parameters[low:high], first[low:high], slow)
                    for small in range(3 if b[GAIN] >= 0 else 1):
                        low = b[BIAS] if small == 0 else (gain if small == 1 else shift)
                        gradient = sum_bias if small == 0 else (sum_gain if small == 1 else sum_shift)
                        high = low + width
                        if adam:
                            _adam(
                                parameters[low:high], first[low:high], second[low:high], gradient, corrected[part],
                                roots[part], tiny, share1, beta2, share2,
                            )  # fmt: skip
                        else:
                            _momentum(parameters[low:high], first[low:high], gradient, mu, slow)
                here = there
                there = places[BACK_TOO] if here == places[BACK] else places[BACK]


@_compiled
def features(parameters, floats, stored, scale, order, chunk, table, epsilons, work, places, result):
    """(n, e) output of the extractor."""
    whole, real = np.zeros(6, np.int32), np.zeros(2, np.float32)
    letters = np.array([78, 84], np.uint8)
    last = table[len(table) - 2]
    width, out, start, n = last[OUTPUTS], last[OUT], places[INPUT], table[0, INPUTS]
    for begin in range(0, len(order), chunk):
        chosen = order[begin : begin + chunk]
        rows = len(chosen)
        _gather(floats, stored, scale, chosen, work[start : start + rows * n])
        _forward(parameters, work, rows, table, epsilons, len(table) - 1, places, whole, real, letters)
        for i in range(rows):
            row = work[out + i * width : out + (i + 1) * width]
            for j in range(width):
                result[begin + i, j] = row[j]


@_compiled
def outputs(parameters, floats, stored, scale, order, chunk, table, epsilons, work, places, result):
    """(n, K) output of the head."""
    whole, real = np.zeros(6, np.int32), np.zeros(2, np.float32)
    letters = np.array([78, 84], np.uint8)
    head = table[len(table) - 1]
    width, out, bias, start, n = head[OUTPUTS], head[OUT], head[BIAS], places[INPUT], table[0, INPUTS]
    for begin in range(0, len(order), chunk):
        chosen = order[begin : begin + chunk]
        rows = len(chosen)
        _gather(floats, stored, scale, chosen, work[start : start + rows * n])
        _forward(parameters, work, rows, table, epsilons, len(table), places, whole, real, letters)
        for i in range(rows):
            for j in range(width):
                result[begin + i, j] = work[out + i * width + j] + parameters[bias + j]
