"""exp, log and ordering of floats in a form that LLVM turns into vector instructions.

LLVM vectorizes neither a library call nor a floating maximum. So exponents are built and read by
bits, mantissas come from polynomials, and the maximum is taken over integers in the same order as
the floats. exp is right to 1.5 units in the last place, log to 2.5, in float32 and float64; the
others, of float64 alone, to 6.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from dubito.kernels.compile import EXACT

f32, i32, i64 = np.float32, np.int32, np.int64

INTEGER_OF = {types.float32: types.int32, types.float64: types.int64}
FLOAT_OF = {integer: floating for floating, integer in INTEGER_OF.items()}


def _reinterpret(context, builder, signature, args):
    return builder.bitcast(args[0], context.get_value_type(signature.return_type))


@intrinsic
def bits_of(context, x):
    """Return the integer with the same bits as a float."""
    return INTEGER_OF[x](x), _reinterpret


@intrinsic
def _float_of(context, bits):
    """Return the float with the same bits as an integer."""
    return FLOAT_OF[bits](bits), _reinterpret


def ordered(x):
    """Return an integer that compares as `x` does: -0.0 and 0.0 are the same."""
    raise NotImplementedError("only inside a kernel")


@overload(ordered)
def _ordered_of(x):
    # The magnitude's bits, negated below 0. Integers only: fast-math flags take x + 0 for x.
    if x == types.float32:

        def ordered_32(x):
            bits = bits_of(x)
            sign = bits >> i32(31)  # 0 or -1
            return i32(((bits & i32(0x7FFFFFFF)) ^ sign) - sign)

        return ordered_32

    def ordered_64(x):
        bits = bits_of(x)
        sign = bits >> i64(63)
        return i64(((bits & i64(0x7FFFFFFFFFFFFFFF)) ^ sign) - sign)

    return ordered_64


def highest(row):
    """Return the highest entry of a row that is not empty."""
    raise NotImplementedError("only inside a kernel")


@overload(highest, jit_options=EXACT)
def _highest_of(row):
    # The magnitude keeps its width: Numba makes 64 bits of what is negated or subtracted.
    whole = i32 if row.dtype == types.float32 else i64

    def highest_entry(row):
        best = ordered(row[0])
        for k in range(row.size):
            best = max(best, ordered(row[k]))
        size = _float_of(whole(abs(best)))
        return size if best >= 0 else -size

    return highest_entry


def exponential(x):
    """Return exp(x) for x <= 0; what lies below the smallest normal number may be 0."""
    raise NotImplementedError("only inside a kernel")


@overload(exponential, jit_options=EXACT)
def _exponential_of(x):
    # exp(x) = 2^n exp(r), n whole, |r| <= log(2) / 2. Adding 1.5 * 2^mantissa + bias rounds to the
    # nearest whole number and leaves n + bias in the low bits. log(2) comes in two parts, of which
    # the first times n is exact. exp(r) = 1 + r + r^2 p(r), p by Chebyshev interpolation. The bound
    # on x is where n + bias, and with it the answer, is 0.
    if x == types.float32:

        def exponential_32(x):
            x = max(x, f32(-88.0))
            shifted = x * f32(1.4426950408889634) + f32(12582912 + 127)
            n = shifted - f32(12582912 + 127)
            r = x - n * f32(0.693359375) + n * f32(2.12194440e-4)
            p = f32(0.0013918943460819986)
            p = p * r + f32(0.008363179052722578)
            p = p * r + f32(0.041666663343346136)
            p = p * r + f32(0.16666576989698775)
            p = p * r + f32(0.49999999673448436)
            p = p * r * r + r + f32(1)
            return p * _float_of(i32(bits_of(shifted) << i32(23)))

        return exponential_32

    def exponential_64(x):
        x = max(x, -709.0)
        shifted = x * 1.4426950408889634 + (6755399441055744.0 + 1023.0)
        n = shifted - (6755399441055744.0 + 1023.0)
        r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
        p = 2.510038549551032e-08
        p = p * r + 2.7620088445409746e-07
        p = p * r + 2.7557268459997064e-06
        p = p * r + 2.4801521295954376e-05
        p = p * r + 0.00019841269863053618
        p = p * r + 0.0013888888917213717
        p = p * r + 0.008333333333330062
        p = p * r + 0.04166666666662413
        p = p * r + 0.16666666666666669
        p = p * r + 0.5000000000000001
        p = p * r * r + r + 1.0
        return p * _float_of(i64(bits_of(shifted) << i64(52)))

    return exponential_64


def logarithm(x):
    """Return log(x) for x > 0; what lies below the smallest normal number counts as that."""
    raise NotImplementedError("only inside a kernel")


@overload(logarithm, jit_options=EXACT)
def _logarithm_of(x):
    # x = 2^n m with sqrt(1/2) <= m < sqrt(2). log(m) = 2 atanh((m - 1) / (m + 1)), by its series.
    if x == types.float32:

        def logarithm_32(x):
            root = i32(0x3F3504F3)
            shifted = i32(bits_of(max(x, f32(1.1754944e-38))) - root)
            n = f32(i32(shifted >> i32(23)))
            f = _float_of(i32((shifted & i32(0x7FFFFF)) + root)) - f32(1)
            s = f / (f + f32(2))
            z = s * s
            p = f32(2 / 9)
            p = p * z + f32(2 / 7)
            p = p * z + f32(2 / 5)
            p = p * z + f32(2 / 3)
            return n * f32(0.693359375) + (n * f32(-2.12194440e-4) + (s * z * p + f32(2) * s))

        return logarithm_32

    def logarithm_64(x):
        root = i64(0x3FE6A09E667F3BCD)
        shifted = i64(bits_of(max(x, 2.2250738585072014e-308)) - root)
        # int64 to float64 through bits: there is no vector instruction for it before AVX-512.
        n = _float_of(i64((shifted >> i64(52)) + i64(0x4338000000000000))) - 6755399441055744.0
        f = _float_of(i64((shifted & i64(0xFFFFFFFFFFFFF)) + root)) - 1.0
        s = f / (f + 2.0)
        z = s * s
        p = 2 / 19
        p = p * z + 2 / 17
        p = p * z + 2 / 15
        p = p * z + 2 / 13
        p = p * z + 2 / 11
        p = p * z + 2 / 9
        p = p * z + 2 / 7
        p = p * z + 2 / 5
        p = p * z + 2 / 3
        return n * 6.93145751953125e-1 + (n * 1.42860682030941723212e-6 + (s * z * p + 2.0 * s))

    return logarithm_64


def logarithm_past_1(x):
    """Return log(1 + x) for a float64 x >= 0, as right for the smallest x as for any."""
    raise NotImplementedError("only inside a kernel")


@overload(logarithm_past_1, jit_options=EXACT)
def _logarithm_past_1_of(x):
    def logarithm_past_1_64(x):
        whole = 1.0 + x
        return logarithm(whole) + (x - (whole - 1.0)) / whole  # what 1 + x has rounded away

    return logarithm_past_1_64


def exponential_less_1(x):
    """Return exp(x) - 1 for a float64 x from 0 to 700, as right for the smallest x as for any."""
    raise NotImplementedError("only inside a kernel")


@overload(exponential_less_1, jit_options=EXACT)
def _exponential_less_1_of(x):
    # As `exponential`, but 1 is taken away from 2^n before what is small is added.
    def exponential_less_1_64(x):
        shifted = x * 1.4426950408889634 + (6755399441055744.0 + 1023.0)
        n = shifted - (6755399441055744.0 + 1023.0)
        r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
        p = 2.510038549551032e-08
        p = p * r + 2.7620088445409746e-07
        p = p * r + 2.7557268459997064e-06
        p = p * r + 2.4801521295954376e-05
        p = p * r + 0.00019841269863053618
        p = p * r + 0.0013888888917213717
        p = p * r + 0.008333333333330062
        p = p * r + 0.04166666666662413
        p = p * r + 0.16666666666666669
        p = p * r + 0.5000000000000001
        p = p * r * r + r
        power = _float_of(i64(bits_of(shifted) << i64(52)))
        return p * power + (power - 1.0)

    return exponential_less_1_64


def tangent(x):
    """Return tan(x) for a float64 x from -1.2 to 1.2."""
    raise NotImplementedError("only inside a kernel")


@overload(tangent, jit_options=EXACT)
def _tangent_of(x):
    # Sine and cosine of x / 2 by their series, and of x from these.
    def tangent_64(x):
        half = 0.5 * x
        z = half * half
        s = -1 / 1307674368000
        s = s * z + 1 / 6227020800
        s = s * z - 1 / 39916800
        s = s * z + 1 / 362880
        s = s * z - 1 / 5040
        s = s * z + 1 / 120
        s = s * z - 1 / 6
        sine = s * z * half + half
        c = 1 / 20922789888000
        c = c * z - 1 / 87178291200
        c = c * z + 1 / 479001600
        c = c * z - 1 / 3628800
        c = c * z + 1 / 40320
        c = c * z - 1 / 720
        c = c * z + 1 / 24
        c = c * z - 0.5
        cosine = c * z + 1.0
        return 2.0 * sine * cosine / ((cosine - sine) * (cosine + sine))

    return tangent_64
