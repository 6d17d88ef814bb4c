"""A tile of a weight gradient that never leaves the registers: summed over the batch, then used up by the optimiser.

While a tile is summed, the parameters and moments that it will move are fetched, so that memory works at the same
time as the arithmetic. Written as LLVM's own vectors, because no loop of Python's comes out as this: 8 inputs by two
vectors of outputs, all of it in registers. The order of every sum is fixed. (Code on disk is renewed when kernels.py
changes, not when this file does: after a change here, touch that one.)
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

_FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")  # of the processor compiled for
TILED = "+fma" in _FEATURES  # elsewhere a product and a loop do the same
LANES = 16 if "+avx512f" in _FEATURES else 8  # floats of a vector
ROWS, VECTORS = (8, 2) if LANES == 16 else (4, 2)  # a tile; its sums fill half of the registers
COLUMNS = VECTORS * LANES
UNROLL = 4  # samples at a time; batches are filled up with zeros
PANEL = 16  # inputs that are packed together, a cache line of each sample

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
    """Σ over samples of panel[s, row] · block[s, column], as a list of rows of vectors."""
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
