"""Online conformal thresholds: forecasts are issued, and learned from when outcomes arrive."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dubito.kernels.compile import inner, kernel
from dubito.kernels.elementary import (
    bits_of,
    exponential_less_1,
    logarithm,
    logarithm_past_1,
    tangent,
)

ACI, TRACKING, PI = 0, 1, 2
IDENTITY, LOG1P, SQRT, LOG = 0, 1, 2, 3
POINTS, SPREAD, ONE_SIDED = 0, 1, 2

N_BINS = 512  # of scores s, by asinh(s / 0.05): 5 % wide from about 0.1 on
HIGHEST_BIT = 8  # of a bin
BINS_PER_UNIT, NEAR_ZERO = 20.0, 0.05
LARGEST_SCORE, LARGEST_ERROR, SMALLEST_UNIT = 1e4, 1e150, 1e-100
OUTLIER = 20.0  # times the mean size, beyond which an error counts as such
MEMORY = 250.0  # steps of scales and of the choice
LONG_MEMORY = 1000.0  # steps of the distribution of scores
N_POOLED = 20.0  # rows of a series at which it counts as much as the pool
N_SCALE = 5.0  # the same, of scales, at most: the less alike series are, the sooner it is their own
SPREAD_OF_ERRORS = 0.57  # squared coefficient of variation of the absolute value of normal errors
N_OWN = 100.0  # rows from which on the scale of a series is its own
RARELY = 16  # of how many further rows one updates what the pool knows of that scale
CAP = 5.0  # times the mean, at which the relative error of a row is cut
FLOOR = 0.05  # of a forecast's own width, relative to the mean error; and of a series' factor
KI, SATURATION, DELAYED_START, STEEPEST = 0.5, 0.25, 20.0, 1.2
LEARNING_RATE, SHORTFALL, MIN_WEIGHT = 0.5, 4.0, 0.02  # of the choice
PRIOR = 3.0  # log weight that ACI, the steadiest, has at first; more where series are pooled
FINAL_RATE = 0.02
HIGHEST = 700.0  # of an exponent
HUGE = 1e308  # as good as infinite
MANTISSA = (1 << 52) - 1  # the bits of a float64 after its exponent
LOG_2 = math.log(2.0)
ROUNDING = 1e-14  # by which a number may miss itself after a transform and back

# Only kernels hold references to arrays: to count those to every view took half of the time. Calls
# would pass on every field of the state.
_borrowing = partial(inner, _nrt=False, forceinline=True)

EDGES = NEAR_ZERO * np.sinh((np.arange(N_BINS + 1) - N_BINS // 2) / BINS_PER_UNIT)


class OnlineState(NamedTuple):
    """Everything that is learned, in arrays that kernels change in place.

    A candidate has a transform, 1 or 2 sides, a method and its first tracker (one per side). The
    last tracker corrects the mixture. The first scale is that of the target itself. A cell is a
    series and a horizon, a pool a horizon. Columns:

    - cells: rows, scales (1 + units), offsets, integrals (one per tracker each), relative errors
      (one per unit), and the logs of the scales
    - pools: rows, cells, scored rows, whether started, weight of a new score, scales (1 + units),
      mean sizes of scores (1 + 2 units), thresholds, integrals, largest scores (one per tracker),
      and of the relative errors of the cells (one per unit each): their sum, that of their squares
      and of the squares by rows, and the mean squared deviation of a row from its cell; then, of
      the logs of each scale of the cells: their number, sum, sum of squares and of 1 / rows
    - choice: weight of the losses, cells, whether weights are out of date; losses, covered rows and
      weights of the candidates
    """

    n_units: int
    n_trackers: int
    transforms: Any
    candidates: Any
    rates: Any
    cells: Any
    pools: Any
    trees: Any
    choice: Any


@_borrowing
def _forward(transform, x):
    if transform == LOG1P:
        return math.copysign(logarithm_past_1(abs(x)), x)
    if transform == SQRT:
        return math.copysign(math.sqrt(abs(x)), x)
    return math.log(x) if transform == LOG else x


@_borrowing
def _backward(transform, x):
    if transform == LOG1P:
        return math.copysign(exponential_less_1(min(abs(x), HIGHEST)), x)
    if transform == SQRT:
        return x * abs(x)
    return math.exp(min(x, HIGHEST)) if transform == LOG else x


@_borrowing
def _bin_of(score):
    """Return the bin of a score: a guess by a short polynomial for the logarithm, then by edges."""
    size = min(abs(score), LARGEST_SCORE) * (1.0 / NEAR_ZERO)
    bits = bits_of(size + math.sqrt(size * size + 1.0))  # its logarithm is asinh(size)
    past = float(bits & MANTISSA) * (1.0 / (MANTISSA + 1))
    log = (past * 0.11234 - 0.40516) * past + 0.98642
    log = float((bits >> 52) - 1023) * LOG_2 + past * log
    guess = int(math.copysign(log, score) * BINS_PER_UNIT + N_BINS / 2)
    place = min(max(guess, 0), N_BINS - 1)
    while place > 0 and score < EDGES[place]:
        place -= 1
    while place < N_BINS - 1 and score >= EDGES[place + 1]:
        place += 1
    return place


@_borrowing
def _add(tree, place, weight):
    """Add weight to a bin of a binary indexed tree, whose last entry holds the total."""
    i = place + 1
    while i <= N_BINS:
        tree[i - 1] += weight
        i += i & -i


@_borrowing
def _quantile(tree, fraction, largest):
    """Return the score below which a fraction of the weight lies, interpolated in its bin."""
    wanted = fraction * tree[N_BINS - 1]
    at, below = 0, 0.0
    for bit in range(HIGHEST_BIT, -1, -1):
        after = at + (1 << bit)
        more = below + tree[after - 1]
        is_past = more < wanted
        at, below = after if is_past else at, more if is_past else below
    if at >= N_BINS - 1:
        return largest
    inside = tree[at]  # the weight of the bin: its entry without those of the bins before
    i, until = at, at & (at + 1)
    while i > until:
        inside -= tree[i - 1]
        i &= i - 1
    part = (wanted - below) / inside if inside > 0 else 1.0
    low, high = EDGES[at], EDGES[at + 1]
    return min(low + min(part, 1.0) * (high - low), largest)


@_borrowing
def _scale(state, cell, pool, column):
    """Return the mean absolute error of a series, pulled towards that of its pool.

    Logs of scales are pooled, by their variance between series: a series in other units, a million
    times as large, says nothing of the scale of this one.
    """
    n, own = min(state.cells[cell, 0], MEMORY), state.cells[cell, 1 + column]
    at = state.pools.shape[1] - 4 * (1 + state.n_units) + 4 * column
    count = state.pools[pool, at]
    if count < 2.0:
        return (n * own + N_SCALE * state.pools[pool, 5 + column]) / (n + N_SCALE)
    if n >= N_OWN:
        return own
    mean = state.pools[pool, at + 1] / count
    if n > 0.0 and own <= 0.0:
        return math.exp(mean) * N_SCALE / (n + N_SCALE)
    variance = (state.pools[pool, at + 2] / count - mean * mean) * count / (count - 1.0)
    variance -= SPREAD_OF_ERRORS * state.pools[pool, at + 3] / count
    prior = 1.0 / max(variance, SPREAD_OF_ERRORS / N_SCALE)
    precision = n / SPREAD_OF_ERRORS + prior
    log = state.cells[cell, state.cells.shape[1] - 1 - state.n_units + column]
    center = (n / SPREAD_OF_ERRORS * log + prior * mean) / precision
    return math.exp(min(center + 0.5 / precision, HIGHEST))


@_borrowing
def _deviation(state, cell, pool, column):
    """Return the mean relative error of a series in relation to that of all, less 1."""
    total = state.pools[pool, 7 + 3 * state.n_units + 3 * state.n_trackers + 4 * column]
    if total <= 0.0 or state.cells[cell, 0] == 0.0 or state.pools[pool, 1] < 2.0:
        return 0.0
    own = state.cells[cell, 2 + state.n_units + 2 * state.n_trackers + column]
    return own * state.pools[pool, 1] / total - 1.0


@_borrowing
def _credibility(state, cell, pool, column, deviation):
    """Return the factor by which errors of a series exceed those of all, as far as is credible.

    The part of a series is n / (n + v / t) by its n rows (Bühlmann): t is the variance between
    series, the mean product of the deviation at the time and the one of the row that follows; v is
    what squared deviations exceed it by, times n.
    """
    at = 7 + 3 * state.n_units + 3 * state.n_trackers + 4 * column
    between = state.pools[pool, at + 1]
    if between <= 0.0 or deviation == 0.0:
        return 1.0
    n = min(state.cells[cell, 0], MEMORY)
    within = max(state.pools[pool, at + 2] - between * state.pools[pool, at + 3], 0.0)
    return max(1.0 + deviation * n * between / (n * between + within), FLOOR)


@_borrowing
def _learn_relative(state, cell, pool, column, error, deviation, n_issued):
    """Add the error of a forecast in its units to the mean of its series, and what it says of t."""
    own = 2 + state.n_units + 2 * state.n_trackers + column
    at = 7 + 3 * state.n_units + 3 * state.n_trackers + 4 * column
    n_cells, n_rows, total = state.pools[pool, 1], state.pools[pool, 0], state.pools[pool, at]
    if total > 0.0:
        error = min(error, CAP * total / n_cells)
        if n_issued > 0.0:
            part = max(1.0 / (n_rows + 1.0), 1.0 / (MEMORY * n_cells))
            product = deviation * (error * n_cells / total - 1.0)
            n, means = min(n_issued, MEMORY), state.pools[pool, at + 1 : at + 4]
            means[0] += part * (product - means[0])
            means[1] += part * (n * deviation * deviation - means[1])
            means[2] += part * (n - means[2])
    old = state.cells[cell, own]
    new = old + (error - old) / min(state.cells[cell, 0] + 1.0, MEMORY)
    state.cells[cell, own] = new
    state.pools[pool, at] += new - old


@_borrowing
def _reweight(state, level):
    """Weigh the candidates by their past interval score, raised where their coverage is short.

    The first candidates of the transforms are compared with each other, the others with the first
    of their transform: rows of one time are alike, and the more so the less two methods have in
    common.
    """
    state.choice[2] = 0.0
    weight, n_cells = state.choice[0], max(state.choice[1], 1.0)
    n, at, best, total = state.rates.size, 3 + 2 * state.rates.size, np.inf, 0.0
    for k in range(n):
        short = max(level - state.choice[3 + n + k] / max(weight, 1.0), 0.0)
        state.choice[at + k] = state.choice[3 + k] * (1.0 + SHORTFALL * short)
        if k == 0 or state.candidates[k, 0] != state.candidates[k - 1, 0]:
            best = min(best, state.choice[at + k])
    first = 0.0
    for k in range(n):
        loss, prior, excess = state.choice[at + k], 0.0, 0.0
        if k == 0 or state.candidates[k, 0] != state.candidates[k - 1, 0]:
            first, prior = loss, PRIOR * (1.0 + math.log10(n_cells))
        if best > 0:
            excess = (first - best) / best / math.sqrt(n_cells) + (loss - first) / best / n_cells
        state.choice[at + k] = math.exp(prior - LEARNING_RATE * weight * excess)
        total += state.choice[at + k]
    for k in range(n):
        state.choice[at + k] /= total


@_borrowing
def _tracked(state, cell, pool, j, fraction):
    """Return a number of the trackers: that of the pool, and the series' own part by its rows."""
    own = state.cells[cell, 2 + state.n_units + j]
    return state.pools[pool, 7 + 3 * state.n_units + j] + fraction * own


@_borrowing
def _threshold(state, k, side, cell, pool, fraction, gain, is_capped):
    """Return the threshold of a tracker."""
    column, n_sides, method = state.candidates[k, 0], state.candidates[k, 1], state.candidates[k, 2]
    j = state.candidates[k, 3] + side
    found = _tracked(state, cell, pool, j, fraction)
    largest = state.pools[pool, 7 + 3 * state.n_units + 2 * state.n_trackers + j]
    if method == ACI:  # found is the error rate
        if found <= 0.0:
            return largest if is_capped else np.inf
        if found >= 1.0:
            return EDGES[0] if is_capped else -np.inf
        return _quantile(state.trees[pool, column], 1.0 - found, largest)
    if method == PI:
        angle = _tracked(state, cell, pool, state.n_trackers + j, fraction) * gain
        size = state.pools[pool, 6 + state.n_units + 2 * column + n_sides - 1]
        found += KI * size * tangent(min(max(angle, -STEEPEST), STEEPEST))
    return min(found, 2.0 * largest) if is_capped else found


@_borrowing
def _issue(state, kind, alpha, cell, pool, low, high, out):
    """Fill a row of `out`: the bounds issued, those mixed, units, and bounds by candidate."""
    n_units, n_candidates = state.transforms.size, state.candidates.shape[0]
    units, bounds = out[6 : 6 + n_units], out[6 + n_units :]
    if kind == SPREAD:
        bounds = out[7 + 3 * n_units :]
        out[6 + n_units] = state.cells[cell, 0]
    out[0], out[1] = low, high
    is_ready = state.pools[pool, 0] > max(4.0, state.pools[pool, 1])
    is_started = state.pools[pool, 3] > 0.0
    is_mixed = n_candidates > 1
    below, above, total = 0.0, 0.0, 0.0
    if state.choice[2] > 0.0:
        _reweight(state, 1.0 - alpha)
    t = state.pools[pool, 0] / max(state.pools[pool, 1], 1.0) + DELAYED_START
    gain = logarithm(t) / (SATURATION * t)
    fraction = state.cells[cell, 0] / (state.cells[cell, 0] + N_POOLED)
    # What is independent is near by: a processor computes it at once.
    if is_started:
        for k in range(n_candidates):
            first = _threshold(state, k, 0, cell, pool, fraction, gain, is_mixed)
            last = first
            if state.candidates[k, 1] == 2:
                last = _threshold(state, k, 1, cell, pool, fraction, gain, is_mixed)
            bounds[2 * k], bounds[2 * k + 1] = first, last
    k = 0
    for column in range(n_units):
        transform = state.transforms[column]
        start = _forward(transform, low)
        end = start if kind != SPREAD else _forward(transform, high)
        unit = 1.0
        if kind != ONE_SIDED:
            scale = _scale(state, cell, pool, column + 1)
            if kind == POINTS:
                unit = max(scale, SMALLEST_UNIT) * is_ready
            elif transform in (IDENTITY, SQRT):  # on a log scale, all are alike
                is_known = state.cells[cell, 0] > 0.0 or end <= start
                unit = max(end - start, FLOOR * scale * is_known, SMALLEST_UNIT)
        if kind == SPREAD:
            deviation = _deviation(state, cell, pool, column)
            factor = _credibility(state, cell, pool, column, deviation)
            out[7 + n_units + 2 * column], out[8 + n_units + 2 * column] = deviation, factor
            middle = start / 2 + end / 2
            start, end = middle - factor * (middle - start), middle + factor * (end - middle)
            unit *= factor
        units[column] = unit
        begin = k
        while is_started and k < n_candidates and state.candidates[k, 0] == column:
            a = start - unit * bounds[2 * k] if unit > 0 else start
            b = end + unit * bounds[2 * k + 1] if unit > 0 else end
            if a > b:
                a = b = start / 2 + end / 2
            bounds[2 * k], bounds[2 * k + 1] = a, b
            k += 1
        if transform != IDENTITY:
            for i in range(2 * begin, 2 * k):
                bounds[i] = _backward(transform, bounds[i])
    for k in range(n_candidates if is_started else 0):
        a, b = bounds[2 * k], bounds[2 * k + 1]
        a, b = a - ROUNDING * abs(a), b + ROUNDING * abs(b)
        bounds[2 * k], bounds[2 * k + 1] = a, b
        weight = state.choice[3 + 2 * state.rates.size + k]
        if weight > MIN_WEIGHT:
            below += weight * a
            above += weight * b
            total += weight
    if not is_started:
        below, above = (low, high) if kind == SPREAD else (-np.inf, np.inf)
        out[2], out[3], out[4], out[5] = 1.0, 0.0, below, above  # crossed: there is no mixture yet
        for k in range(n_candidates):
            bounds[2 * k], bounds[2 * k + 1] = below, above
        return
    out[2], out[3] = below / total, above / total
    if not is_mixed:
        out[2], out[3] = bounds[0], bounds[1]
    out[4], out[5] = out[2], out[3]
    if is_mixed:
        extra = _tracked(state, cell, pool, state.n_trackers - 1, fraction)
        step = extra * (out[3] - out[2] if kind != ONE_SIDED else 1.0)
        out[4], out[5] = out[2] - step, out[3] + step
        if out[4] > out[5]:
            out[4] = out[5] = out[2] / 2 + out[3] / 2


@_borrowing
def _learn_scale(state, cell, pool, column, error, own_part, pool_part):
    """Add an absolute error to the mean of its series and its pool, with their weights."""
    n, own = state.cells[cell, 0], state.cells[cell, 1 + column]
    if n >= 10.0 and own > 0.0:
        error = min(error, OUTLIER * own)
    state.pools[pool, 5 + column] += pool_part * (error - state.pools[pool, 5 + column])
    new = own + own_part * (error - own)
    state.cells[cell, 1 + column] = new
    if n < N_OWN or int(n) % RARELY == 0:
        place = state.cells.shape[1] - 1 - state.n_units + column
        _learn_log_scale(state, cell, pool, column, place, new)


@_borrowing
def _learn_log_scale(state, cell, pool, column, place, scale):
    """Replace what the pool knows of the log of a scale of a series; logs are never exactly 0."""
    at = state.pools.shape[1] - 4 * (1 + state.n_units) + 4 * column
    old, n = state.cells[cell, place], min(state.cells[cell, 0], N_OWN)
    if old != 0.0:
        state.pools[pool, at] -= 1.0
        state.pools[pool, at + 1] -= old
        state.pools[pool, at + 2] -= old * old
        state.pools[pool, at + 3] -= 1.0 / n
    state.cells[cell, place] = 0.0
    if scale > 0.0:
        new = math.log(scale)
        new = new if new != 0.0 else SMALLEST_UNIT
        state.cells[cell, place] = new
        state.pools[pool, at] += 1.0
        state.pools[pool, at + 1] += new
        state.pools[pool, at + 2] += new * new
        state.pools[pool, at + 3] += 1.0 / min(n + 1.0, N_OWN)


@_borrowing
def _learn_size(state, pool, column, size, part):
    """Add the size of a score to the mean of its pool, with a weight, and return the mean."""
    n, mean = state.pools[pool, 2], state.pools[pool, 6 + state.n_units + column]
    if n >= 10.0 and mean > 0:
        size = min(size, OUTLIER * mean)
    mean += (size - mean) * part
    state.pools[pool, 6 + state.n_units + column] = mean
    return mean


@_borrowing
def _step(state, cell, pool, j, size, part, per_cell):
    """Move a tracker of a pool, and if that is of several series, also the one of the series."""
    at = 7 + 3 * state.n_units + j
    state.pools[pool, at] += size * part * per_cell
    state.pools[pool, at + state.n_trackers] += part * per_cell
    if per_cell < 1.0:
        own = 2 + state.n_units + j
        state.cells[cell, own] += size * part
        state.cells[cell, own + state.n_trackers] += part


@_borrowing
def _learn_outcome(state, kind, alpha, cell, pool, delay, y, out):
    """Learn from the outcome of a forecast that was issued."""
    n_units, n_candidates = state.transforms.size, state.candidates.shape[0]
    units, bounds = out[6 : 6 + n_units], out[6 + n_units :]
    if kind == SPREAD:
        bounds = out[7 + 3 * n_units :]
    if state.cells[cell, 0] == 0.0:
        state.pools[pool, 1] += 1.0
        state.choice[1] += 1.0
    per_cell = 1.0 / max(state.pools[pool, 1], 1.0)
    own_part = max(1.0 / (state.cells[cell, 0] + 1.0), 1.0 / MEMORY)
    pool_part = max(1.0 / (state.pools[pool, 0] + 1.0), per_cell / MEMORY)
    size_part = max(1.0 / (state.pools[pool, 2] + 1.0), per_cell / MEMORY)
    # Of several series, half of a step is that of the pool, which moves by the mean of its series.
    rate = (0.5 if per_cell < 1.0 else 1.0) / delay
    has_units = True
    for column in range(n_units):
        has_units = has_units and units[column] > 0.0
    if state.pools[pool, 3] > 0.0 and has_units and n_candidates > 1 and out[2] <= out[3]:
        _learn_choice(state, kind, alpha, cell, pool, y, bounds)
        width = out[3] - out[2] if kind != ONE_SIDED else 1.0
        if width > 0.0:
            score = y - out[3] if kind == ONE_SIDED else max(out[2] - y, y - out[3])
            size = min(abs(score) / width, LARGEST_SCORE)
            size = _learn_size(state, pool, 2 * n_units, size, size_part)
            is_missed = y > out[5] or (kind != ONE_SIDED and y < out[4])
            part = ((1.0 if is_missed else 0.0) - alpha) * rate
            _step(state, cell, pool, state.n_trackers - 1, FINAL_RATE * size, part, per_cell)
    error = min(abs(y - out[0] / 2 - out[1] / 2), LARGEST_ERROR)
    _learn_scale(state, cell, pool, 0, error, own_part, pool_part)
    for column in range(n_units):
        transform = state.transforms[column]
        value, start = _forward(transform, y), _forward(transform, out[0])
        end = start if kind != SPREAD else _forward(transform, out[1])
        middle = start / 2 + end / 2
        error = min(abs(value - middle), LARGEST_ERROR)
        if has_units:
            if kind == SPREAD:
                n, deviation = out[6 + n_units], out[7 + n_units + 2 * column]
                factor = out[8 + n_units + 2 * column]
                size = units[column] / factor
                if transform in (LOG1P, LOG):  # units do not depend on the width
                    size = end / 2 - start / 2 + state.pools[pool, 6 + column]
                relative = min(error / max(size, SMALLEST_UNIT), 1.0 / FLOOR)
                start, end = middle - factor * (middle - start), middle + factor * (end - middle)
                _learn_relative(state, cell, pool, column, relative, deviation, n)
            below, above = (start - value) / units[column], (value - end) / units[column]
            parts = (rate, per_cell, size_part)
            _learn_scores(
                state, kind, alpha, cell, pool, parts, y, below, above, out, bounds, column
            )
        _learn_scale(state, cell, pool, column + 1, error, own_part, pool_part)
    if has_units:
        state.pools[pool, 2] += 1.0
        if state.pools[pool, 3] == 0.0:
            _start(state, alpha, pool)
    state.pools[pool, 0] += 1.0
    state.cells[cell, 0] += 1.0


@_borrowing
def _learn_choice(state, kind, alpha, cell, pool, y, bounds):
    """Add the interval score of each candidate, in units of the series' mean error."""
    unit = 1.0 if kind == ONE_SIDED else _scale(state, cell, pool, 0)
    if unit <= 0.0:
        return
    keep = 1.0 - 1.0 / (MEMORY * max(state.choice[1], 1.0))
    state.choice[0] = state.choice[0] * keep + 1.0
    state.choice[2] = 1.0
    losses, covered = state.choice[3:], state.choice[3 + state.rates.size :]
    for k in range(state.rates.size):
        low, high = bounds[2 * k], bounds[2 * k + 1]
        if kind == ONE_SIDED:
            is_covered, loss = y <= high, high + max(y - high, 0.0) / alpha
        else:
            is_covered = low <= y <= high
            loss = high - low + 2.0 / alpha * (max(low - y, 0.0) + max(y - high, 0.0))
        losses[k] = losses[k] * keep + min(loss / unit, LARGEST_SCORE)
        covered[k] = covered[k] * keep + (1.0 if is_covered else 0.0)


@_borrowing
def _learn_scores(state, kind, alpha, cell, pool, parts, y, below, above, out, bounds, column):
    """Add the scores of one transform to their distribution, and move its trackers."""
    n_units = state.transforms.size
    rate, per_cell, size_part = parts
    below = min(max(below, -LARGEST_SCORE), LARGEST_SCORE)
    above = min(max(above, -LARGEST_SCORE), LARGEST_SCORE)
    score = above if kind == ONE_SIDED else max(below, above)
    both = max(abs(below), abs(above))
    one_size = _learn_size(state, pool, 2 * column, both, size_part)
    mean = abs(below) / 2 + abs(above) / 2
    two_size = _learn_size(state, pool, 2 * column + 1, mean, size_part)
    tree = state.trees[pool, column]
    if column == 0:
        state.pools[pool, 4] *= 1.0 + per_cell / LONG_MEMORY
        if state.pools[pool, 4] > 1e9:
            for other in range(n_units):
                for place in range(N_BINS):
                    state.trees[pool, other, place] /= state.pools[pool, 4]
            state.pools[pool, 4] = 1.0
    _add(tree, _bin_of(score), state.pools[pool, 4])
    is_moved = state.pools[pool, 3] > 0.0 and out[2] <= out[3]
    largest = 7 + 3 * state.n_units + 2 * state.n_trackers
    for k in range(state.candidates.shape[0]):
        if state.candidates[k, 0] != column:
            continue
        n_sides, method, j = state.candidates[k, 1], state.candidates[k, 2], state.candidates[k, 3]
        is_low = kind != ONE_SIDED and y < bounds[2 * k]
        is_high = y > bounds[2 * k + 1]
        step = state.rates[k] * (one_size if n_sides == 1 else two_size)
        step = -state.rates[k] if method == ACI else step
        hit = -alpha * rate if n_sides == 1 else -0.5 * alpha * rate
        miss = hit + rate
        for side in range(n_sides):
            own = score if n_sides == 1 else (below if side == 0 else above)
            at = largest + j + side
            state.pools[pool, at] = max(state.pools[pool, at], own)
            if is_moved:
                is_missed = is_low or is_high
                if n_sides == 2:
                    is_missed = is_low if side == 0 else is_high
                _step(state, cell, pool, j + side, step, miss if is_missed else hit, per_cell)


@_borrowing
def _start(state, alpha, pool):
    """Start the trackers of a pool at the quantile of the first scores, once there are enough."""
    if state.pools[pool, 2] <= max(9.0, state.pools[pool, 1]):
        return
    state.pools[pool, 3] = 1.0
    trackers = state.pools[pool, 7 + 3 * state.n_units :]
    for k in range(state.candidates.shape[0]):
        column, n_sides, j = state.candidates[k, 0], state.candidates[k, 1], state.candidates[k, 3]
        largest = trackers[2 * state.n_trackers + j]
        for side in range(n_sides):
            if state.candidates[k, 2] == ACI:
                trackers[j + side] = alpha / n_sides
            else:
                trackers[j + side] = _quantile(state.trees[pool, column], 1.0 - alpha, largest)


@kernel
def run_online(state, kind, alpha, cells, pools, delays, times, low, high, known, y, order, out):
    """Issue rows in order of time, after learning from the outcomes that are known by then.

    Rows before `len(known) - len(times)` were issued before. `order` lists rows by when their
    outcome is known, and `out` holds what was issued. Returns how many outcomes were learned from.
    """
    n_before = known.size - times.size
    n_learned = 0
    for i in range(times.size + 1):
        now = times[i] if i < times.size else -np.inf
        while n_learned < order.size and known[order[n_learned]] <= now:
            row = order[n_learned]
            _learn_outcome(
                state, kind, alpha, cells[row], pools[row], delays[row], y[row], out[row]
            )
            n_learned += 1
        if i < times.size:
            row = n_before + i
            _issue(state, kind, alpha, cells[row], pools[row], low[row], high[row], out[row])
    return n_learned


@kernel
def settle_online(state, kind, alpha, cells, pools, delays, y, out):
    """Learn from the outcomes of rows, one after another."""
    for row in range(y.size):
        _learn_outcome(state, kind, alpha, cells[row], pools[row], delays[row], y[row], out[row])
