"""Products in tiles that stay in the registers while they are summed: 8 rows by two vectors of columns.

A tile of a weight gradient never leaves them: it is summed over the batch, then used up by the optimiser, whose
parameters and moments are fetched meanwhile, so that memory works at the same time as the arithmetic. Tiles of other
products are for processors whose vectors the machine's sgemm leaves half empty (`PRODUCTS`). Written as LLVM's own
vectors, because no loop of Python's comes out as this. The order of every sum is fixed. (Code on disk is renewed when
kernels.py changes, not when this file does: after a change here, touch that one.)
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

_, _PROCESSOR, _FEATURES = cpu_target.target_context.codegen().magic_tuple()  # what is compiled for
_FEATURES = _FEATURES.split(",")
TILED = "+fma" in _FEATURES  # elsewhere a product and a loop do the same
LANES = 16 if "+avx512f" in _FEATURES else 8  # floats of a vector
ROWS, VECTORS = (8, 2) if LANES == 16 else (4, 2)  # a tile; its sums fill half of the registers
COLUMNS = VECTORS * LANES
UNROLL = 4  # samples at a time; batches are filled up with zeros
PANEL = 16  # inputs that are packed together, a cache line of each sample
PRODUCTS = LANES == 16 and _PROCESSOR.startswith("znver")  # on AMD's processors MKL has no more than AVX2
DEPTH, GROUP = 256, 256  # terms of a sum, and columns, that are packed together for a product: 256 kB

_WORD, _FLOAT = ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _inlined(function):
    """What a compiled function may call, written out in its place."""
    return intrinsic(function)


def _splat(builder, value):
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), lanes)


def _at(builder, address, kind):
    return builder.inttoptr(address, ir.PointerType(kind))


def _load(builder, address, kind=_VECTOR):
    return builder.load(_at(builder, address, kind), align=4)


def _plus(builder, address, offset):
    return builder.add(address, offset if isinstance(offset, ir.Value) else _WORD(offset))


def _number(value):
    return ir.Constant(_VECTOR, [value] * LANES)


def _fma(builder, a, b, c):
    return _called(builder, f"llvm.fma.v{LANES}f32", [a, b, c])


def _called(builder, name, arguments, kind=_VECTOR):
    """A call of one of LLVM's own functions, declared where the module does not know it yet."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(kind, [each.type for each in arguments]), name)
    return builder.call(function, arguments)


def _estimate(builder, name, value):
    """AVX-512's estimate to 14 bits, of all lanes."""
    return _called(builder, f"llvm.x86.avx512.{name}.ps.512", [value, _number(0.0), ir.IntType(16)(-1)])


def _root(builder, value):
    """√value, of what is above nothing and finite: by estimate and one Newton step where the processor has one."""
    if LANES != 16:
        return _called(builder, f"llvm.sqrt.v{LANES}f32", [value])
    estimate = _estimate(builder, "rsqrt14", value)
    root = builder.fmul(value, estimate)
    error = _fma(builder, builder.fneg(root), estimate, _number(1.0))
    return _fma(builder, builder.fmul(root, _number(0.5)), error, root)


def _inverse(builder, value):
    """1 / value, likewise."""
    if LANES != 16:
        return builder.fdiv(_number(1.0), value)
    estimate = _estimate(builder, "rcp14", value)
    error = _fma(builder, builder.fneg(value), estimate, _number(1.0))
    return _fma(builder, estimate, error, estimate)


def _fetch(builder, address, nearness):
    """Ask for a cache line; nearness 3 is the first level, 2 the second."""
    number = ir.IntType(32)
    line = builder.inttoptr(address, ir.PointerType(ir.IntType(8)))
    _called(builder, "llvm.prefetch.p0", [line, number(0), number(nearness), number(1)], ir.VoidType())


def _sums(builder, panel, block, samples, buffers, stride, ahead, apart):
    """Σ over samples of panel[s, row] · block[s, column], as rows of vectors; fetches the buffers' tile meanwhile."""
    for i in range(UNROLL):
        _fetch(builder, _plus(builder, ahead, builder.mul(apart, _WORD(i))), 3)
    before = builder.block
    loop, done = builder.append_basic_block("tile.loop"), builder.append_basic_block("tile.done")
    builder.branch(loop)
    builder.position_at_end(loop)
    sample = builder.phi(_WORD)
    sample.add_incoming(_WORD(0), before)
    starts = [[builder.phi(_VECTOR) for _ in range(VECTORS)] for _ in range(ROWS)]
    line = builder.urem(builder.udiv(sample, _WORD(UNROLL)), _WORD(ROWS * VECTORS))
    place = builder.mul(builder.udiv(line, _WORD(VECTORS)), stride)
    place = _plus(builder, place, builder.mul(builder.urem(line, _WORD(VECTORS)), _WORD(4 * LANES)))
    later = _plus(builder, place, builder.mul(stride, _WORD(PANEL)))
    for buffer in buffers:
        _fetch(builder, _plus(builder, buffer, place), 3)
        _fetch(builder, _plus(builder, buffer, later), 2)  # the same tile of the next panel
    outputs = _plus(builder, block, builder.mul(sample, _WORD(4 * COLUMNS)))
    inputs = _plus(builder, panel, builder.mul(sample, _WORD(4 * PANEL)))
    sums = starts
    for u in range(UNROLL):
        columns = [_load(builder, _plus(builder, outputs, 4 * (u * COLUMNS + LANES * j))) for j in range(VECTORS)]
        rows = [_load(builder, _plus(builder, inputs, 4 * (u * PANEL + i)), _FLOAT) for i in range(ROWS)]
        rows = [_splat(builder, row) for row in rows]
        sums = [[_fma(builder, rows[i], columns[j], sums[i][j]) for j in range(VECTORS)] for i in range(ROWS)]
    following = builder.add(sample, _WORD(UNROLL))
    sample.add_incoming(following, loop)
    for i in range(ROWS):
        for j in range(VECTORS):
            starts[i][j].add_incoming(_number(0.0), before)
            starts[i][j].add_incoming(sums[i][j], loop)
    builder.cbranch(builder.icmp_signed("<", following, samples), loop, done)
    builder.position_at_end(done)
    return sums


@_inlined
def pack(typingctx, source, stride, vectors, rows, target):
    """Copy `rows` lines of vectors that start `stride` bytes apart; behind each other in the target."""
    signature = types.void(*[types.intp] * 5)

    def generate(context, builder, signature, arguments):
        source, stride, vectors, rows, target = arguments
        size = builder.mul(vectors, _WORD(4 * LANES))
        with cgutils.for_range(builder, rows) as row:
            start = _plus(builder, source, builder.mul(row.index, stride))
            end = _plus(builder, target, builder.mul(row.index, size))
            with cgutils.for_range(builder, vectors) as column:
                offset = builder.mul(column.index, _WORD(4 * LANES))
                value = _load(builder, _plus(builder, start, offset))
                builder.store(value, _at(builder, _plus(builder, end, offset), _VECTOR), align=4)
        return context.get_dummy_value()

    return signature, generate


@_inlined
def tile_adam(
    typingctx, panel, block, samples, ahead, apart, parameters, first, second, stride, rate, root, epsilon, share1,
    beta2, share2,
):  # fmt: skip
    """Moves a tile of the three buffers, whose rows are `stride` bytes apart, by the gradient of packed samples.

    `ahead` is what to fetch of the inputs that are packed next: a line of four samples, `apart` bytes from each other.
    """
    signature = types.void(*[types.intp] * 9, *[types.float32] * 6)

    def generate(context, builder, signature, arguments):
        panel, block, samples, ahead, apart, parameters, first, second, stride = arguments[:9]
        rate, root, epsilon, share1, beta2, share2 = (_splat(builder, each) for each in arguments[9:])
        sums = _sums(builder, panel, block, samples, (parameters, first, second), stride, ahead, apart)

        def move(gradient, offset):
            at_p, at_m, at_v = (_plus(builder, start, offset) for start in (parameters, first, second))
            m, v = _load(builder, at_m), _load(builder, at_v)
            m = _fma(builder, share1, builder.fsub(gradient, m), m)
            v = _fma(builder, builder.fmul(share2, gradient), gradient, builder.fmul(beta2, v))
            safe = builder.select(builder.fcmp_ordered(">", v, _number(2.0**-126)), v, _number(2.0**-126))
            inverse = _inverse(builder, _fma(builder, _root(builder, safe), root, epsilon))
            p = _fma(builder, builder.fneg(builder.fmul(rate, m)), inverse, _load(builder, at_p))
            for value, address in ((m, at_m), (v, at_v), (p, at_p)):
                builder.store(value, _at(builder, address, _VECTOR), align=4)

        row = _WORD(0)
        for line in sums:
            for j, gradient in enumerate(line):
                move(gradient, _plus(builder, row, 4 * LANES * j))
            row = builder.add(row, stride)
        return context.get_dummy_value()

    return signature, generate


@_inlined
def tile_momentum(typingctx, panel, block, samples, ahead, apart, parameters, velocity, stride, rate, momentum):
    """As `tile_adam`: v ← momentum · v + gradient, p ← p - rate · v."""
    signature = types.void(*[types.intp] * 8, *[types.float32] * 2)

    def generate(context, builder, signature, arguments):
        panel, block, samples, ahead, apart, parameters, velocity, stride = arguments[:8]
        rate, momentum = (_splat(builder, each) for each in arguments[8:])
        sums = _sums(builder, panel, block, samples, (parameters, velocity), stride, ahead, apart)
        row = _WORD(0)
        for line in sums:
            for j, gradient in enumerate(line):
                offset = _plus(builder, row, 4 * LANES * j)
                at_p, at_v = _plus(builder, parameters, offset), _plus(builder, velocity, offset)
                v = _fma(builder, momentum, _load(builder, at_v), gradient)
                p = _fma(builder, builder.fneg(rate), v, _load(builder, at_p))
                for value, address in ((v, at_v), (p, at_p)):
                    builder.store(value, _at(builder, address, _VECTOR), align=4)
            row = builder.add(row, stride)
        return context.get_dummy_value()

    return signature, generate


@_inlined
def tile_product(typingctx, rows, row_stride, block, terms, target, stride, more, ahead):
    """A tile of rows (8, terms) times a packed block (terms, 32) to the target, or added to it where `more` is set.

    `ahead` is what to fetch meanwhile, a cache line for every four terms.
    """
    signature = types.void(*[types.intp] * 8)

    def generate(context, builder, signature, arguments):
        rows, row_stride, block, terms, target, stride, more, ahead = arguments
        adding = builder.icmp_signed("!=", more, _WORD(0))
        places, starts, place = [], [], target
        for _ in range(ROWS):
            places.append([_plus(builder, place, 4 * LANES * j) for j in range(VECTORS)])
            starts.append([builder.select(adding, _load(builder, each), _number(0.0)) for each in places[-1]])
            place = builder.add(place, stride)
        lines = [rows]
        for _ in range(ROWS - 1):
            lines.append(builder.add(lines[-1], row_stride))
        before = builder.block
        loop, done = builder.append_basic_block("product.loop"), builder.append_basic_block("product.done")
        builder.branch(loop)
        builder.position_at_end(loop)
        term = builder.phi(_WORD)
        term.add_incoming(_WORD(0), before)
        phis = [[builder.phi(_VECTOR) for _ in range(VECTORS)] for _ in range(ROWS)]
        _fetch(builder, _plus(builder, ahead, builder.mul(term, _WORD(64 // UNROLL))), 2)
        columns = _plus(builder, block, builder.mul(term, _WORD(4 * COLUMNS)))
        along = builder.mul(term, _WORD(4))
        sums = phis
        for u in range(UNROLL):
            right = [_load(builder, _plus(builder, columns, 4 * (u * COLUMNS + LANES * j))) for j in range(VECTORS)]
            left = [_load(builder, _plus(builder, _plus(builder, line, along), 4 * u), _FLOAT) for line in lines]
            left = [_splat(builder, each) for each in left]
            sums = [[_fma(builder, left[i], right[j], sums[i][j]) for j in range(VECTORS)] for i in range(ROWS)]
        following = builder.add(term, _WORD(UNROLL))
        term.add_incoming(following, loop)
        for i in range(ROWS):
            for j in range(VECTORS):
                phis[i][j].add_incoming(starts[i][j], before)
                phis[i][j].add_incoming(sums[i][j], loop)
        builder.cbranch(builder.icmp_signed("<", following, terms), loop, done)
        builder.position_at_end(done)
        for i in range(ROWS):
            for j in range(VECTORS):
                builder.store(sums[i][j], _at(builder, places[i][j], _VECTOR), align=4)
        return context.get_dummy_value()

    return signature, generate


@_inlined
def pack_turned(typingctx, source, stride, terms, target):
    """Copy 32 lines that start `stride` bytes apart, turned: target[t, line] = source[line, t] for t < terms."""
    signature = types.void(*[types.intp] * 4)

    def generate(context, builder, signature, arguments):
        source, stride, terms, target = arguments
        for j in range(VECTORS):
            start = _plus(builder, source, builder.mul(stride, _WORD(j * LANES)))
            end = _plus(builder, target, 4 * LANES * j)
            with cgutils.for_range(builder, builder.udiv(terms, _WORD(LANES))) as square:
                corner = _plus(builder, start, builder.mul(square.index, _WORD(4 * LANES)))
                lines = []
                for _ in range(LANES):
                    lines.append(_load(builder, corner))
                    corner = builder.add(corner, stride)
                place = _plus(builder, end, builder.mul(square.index, _WORD(4 * LANES * COLUMNS)))
                for t, line in enumerate(_turned(builder, lines)):
                    address = _plus(builder, place, 4 * COLUMNS * t)
                    builder.store(line, _at(builder, address, _VECTOR), align=4)
        return context.get_dummy_value()

    return signature, generate


def _turned(builder, lines):
    """The transpose of a square of vectors: in every stage, pairs of lines exchange half of their lanes."""
    half = 1
    while half < LANES:
        first = [n if n & half == 0 else LANES + n - half for n in range(LANES)]
        second = [n + half if n & half == 0 else LANES + n for n in range(LANES)]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), each) for each in (first, second)]
        for i in range(LANES):
            if i & half == 0:
                pair = lines[i], lines[i + half]
                lines[i], lines[i + half] = (builder.shuffle_vector(*pair, mask) for mask in masks)
        half *= 2
    return lines
