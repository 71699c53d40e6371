"""Online conformal thresholds: forecasts are issued, and learned from when their truth arrives."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dubito.kernels.compile import inner, kernel

ACI, TRACKING, PI = 0, 1, 2
IDENTITY, LOG1P, SQRT, LOG = 0, 1, 2, 3
POINTS, SPREAD, ONE_SIDED = 0, 1, 2

N_BINS = 512  # of scores s, by asinh(s / 0.05): 5 % wide from about 0.1 on
N_BITS = 9
BINS_PER_UNIT, NEAR_ZERO = 20.0, 0.05
LARGEST_SCORE, LARGEST_ERROR, SMALLEST_UNIT = 1e4, 1e150, 1e-100
OUTLIER = 20.0  # times the mean size, beyond which an error counts as such
MEMORY = 250.0  # steps of scales and of the choice
LONG_MEMORY = 1000.0  # steps of the distribution of scores
N_POOLED = 20.0  # rows of a series at which it counts as much as the pool
N_SCALE = 5.0  # the same, of scales
FLOOR = 0.05  # of a forecast's own width, relative to the mean error
KI, SATURATION, DELAYED_START, STEEPEST = 0.5, 0.25, 20.0, 1.2
LEARNING_RATE, SHORTFALL, LEAST_WEIGHT = 0.5, 4.0, 0.02  # of the choice
PRIOR = 3.0  # log weight that ACI, the steadiest, has at first; more where series are pooled
FINAL_RATE = 0.02
HIGHEST = 700.0  # of an exponent
HUGE = 1e308  # as good as infinite
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

    - cells: rows, scales (1 + units), offsets, integrals (one per tracker each)
    - pools: rows, cells, scored rows, whether started, weight of a new score, scales (1 + units),
      mean sizes of scores (1 + 2 units), thresholds, integrals, largest scores (one per tracker)
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
        return math.copysign(math.log1p(abs(x)), x)
    if transform == SQRT:
        return math.copysign(math.sqrt(abs(x)), x)
    return math.log(x) if transform == LOG else x


@_borrowing
def _backward(transform, x):
    if transform == LOG1P:
        return math.copysign(math.expm1(min(abs(x), HIGHEST)), x)
    if transform == SQRT:
        return x * abs(x)
    return math.exp(min(x, HIGHEST)) if transform == LOG else x


@_borrowing
def _bin_of(score):
    place = math.floor(math.asinh(score / NEAR_ZERO) * BINS_PER_UNIT) + N_BINS // 2
    return int(min(max(place, 0), N_BINS - 1))


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
    for bit in range(N_BITS, -1, -1):
        after = at + (1 << bit)
        if after <= N_BINS and below + tree[after - 1] < wanted:
            at, below = after, below + tree[after - 1]
    if at >= N_BINS - 1:
        return largest
    inside = -below  # the weight of the bin: of all bins to its end, without those before
    i = at + 1
    while i > 0:
        inside += tree[i - 1]
        i -= i & -i
    part = (wanted - below) / inside if inside > 0 else 1.0
    low, high = EDGES[at], EDGES[at + 1]
    return min(low + min(part, 1.0) * (high - low), largest)


@_borrowing
def _scale(state, cell, pool, column):
    """Return the mean absolute error of a series, pulled towards that of its pool."""
    n = min(state.cells[cell, 0], MEMORY)
    own, others = state.cells[cell, 1 + column], state.pools[pool, 5 + column]
    return (n * own + N_SCALE * others) / (n + N_SCALE)


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
def _threshold(state, k, side, cell, pool, gain, is_capped):
    """Return the threshold of a tracker: that of the pool, and the series' own part by its rows."""
    column, n_sides, method = state.candidates[k, 0], state.candidates[k, 1], state.candidates[k, 2]
    j = state.candidates[k, 3] + side
    fraction = state.cells[cell, 0] / (state.cells[cell, 0] + N_POOLED)
    found = (
        state.pools[pool, 7 + 3 * state.n_units + j]
        + fraction * state.cells[cell, 2 + state.n_units + j]
    )
    largest = state.pools[pool, 7 + 3 * state.n_units + 2 * state.n_trackers + j]
    if method == ACI:  # found is the error rate
        if found <= 0.0:
            return largest if is_capped else np.inf
        if found >= 1.0:
            return EDGES[0] if is_capped else -np.inf
        return _quantile(state.trees[pool, column], 1.0 - found, largest)
    if method == PI:
        total = (
            state.pools[pool, 7 + 3 * state.n_units + state.n_trackers + j]
            + fraction * state.cells[cell, 2 + state.n_units + state.n_trackers + j]
        )
        angle = total * gain
        size = state.pools[pool, 6 + state.n_units + 2 * column + n_sides - 1]
        found += KI * size * math.tan(min(max(angle, -STEEPEST), STEEPEST))
    return min(found, 2.0 * largest) if is_capped else found


@_borrowing
def _issue(state, kind, alpha, cell, pool, low, high, out):
    """Fill a row of `out`: the bounds issued, those mixed, units, and bounds by candidate."""
    n_units, n_candidates = state.transforms.size, state.candidates.shape[0]
    units, bounds = out[6 : 6 + n_units], out[6 + n_units :]
    out[0], out[1] = low, high
    is_ready = state.pools[pool, 0] > max(4.0, state.pools[pool, 1])
    is_started = state.pools[pool, 3] > 0.0
    is_mixed = n_candidates > 1
    below, above, total = 0.0, 0.0, 0.0
    if state.choice[2] > 0.0:
        _reweight(state, 1.0 - alpha)
    t = state.pools[pool, 0] / max(state.pools[pool, 1], 1.0) + DELAYED_START
    gain = math.log(t) / (SATURATION * t)
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
                unit = max(end - start, FLOOR * scale, SMALLEST_UNIT)
        units[column] = unit
        while is_started and k < n_candidates and state.candidates[k, 0] == column:
            first = _threshold(state, k, 0, cell, pool, gain, is_mixed)
            last = first
            if state.candidates[k, 1] == 2:
                last = _threshold(state, k, 1, cell, pool, gain, is_mixed)
            a = start - unit * first if unit > 0 else start
            b = end + unit * last if unit > 0 else end
            if a > b:
                a = b = start / 2 + end / 2
            a, b = _backward(transform, a), _backward(transform, b)
            a, b = a - ROUNDING * abs(a), b + ROUNDING * abs(b)
            bounds[2 * k], bounds[2 * k + 1] = a, b
            weight = state.choice[3 + 2 * state.rates.size + k]
            if weight > LEAST_WEIGHT:
                below += weight * a
                above += weight * b
                total += weight
            k += 1
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
        fraction = state.cells[cell, 0] / (state.cells[cell, 0] + N_POOLED)
        extra = (
            state.pools[pool, 7 + 3 * state.n_units + state.n_trackers - 1]
            + fraction * state.cells[cell, 2 + state.n_units + state.n_trackers - 1]
        )
        step = extra * (out[3] - out[2] if kind != ONE_SIDED else 1.0)
        out[4], out[5] = out[2] - step, out[3] + step
        if out[4] > out[5]:
            out[4] = out[5] = out[2] / 2 + out[3] / 2


@_borrowing
def _learn_scale(state, cell, pool, column, error):
    """Add an absolute error to the mean of its series and its pool."""
    mean = state.pools[pool, 5 + column]
    if state.pools[pool, 0] >= 10.0 and mean > 0:
        error = min(error, OUTLIER * mean)
    n_cells = max(state.pools[pool, 1], 1.0)
    part = max(1.0 / (state.pools[pool, 0] + 1.0), 1.0 / (MEMORY * n_cells))
    state.pools[pool, 5 + column] += part * (error - mean)
    part = max(1.0 / (state.cells[cell, 0] + 1.0), 1.0 / MEMORY)
    state.cells[cell, 1 + column] += part * (error - state.cells[cell, 1 + column])


@_borrowing
def _learn_size(state, pool, column, size):
    """Add the size of a score to the mean of its pool, and return the mean."""
    n, mean = state.pools[pool, 2], state.pools[pool, 6 + state.n_units + column]
    if n >= 10.0 and mean > 0:
        size = min(size, OUTLIER * mean)
    mean += (size - mean) * max(1.0 / (n + 1.0), 1.0 / (MEMORY * max(state.pools[pool, 1], 1.0)))
    state.pools[pool, 6 + state.n_units + column] = mean
    return mean


@_borrowing
def _step(state, cell, pool, j, size, gap):
    """Move a tracker by its error less the error rate.

    Of several series, half of the step is that of the pool, which moves by the mean of its series.
    """
    n_cells = max(state.pools[pool, 1], 1.0)
    part = gap if n_cells == 1.0 else gap / 2.0
    state.pools[pool, 7 + 3 * state.n_units + j] += size * part / n_cells
    state.pools[pool, 7 + 3 * state.n_units + state.n_trackers + j] += part / n_cells
    if n_cells > 1.0:
        state.cells[cell, 2 + state.n_units + j] += size * part
        state.cells[cell, 2 + state.n_units + state.n_trackers + j] += part


@_borrowing
def _settle(state, kind, alpha, cell, pool, delay, y, out):
    """Learn from the truth of a forecast that was issued."""
    n_units, n_candidates = state.transforms.size, state.candidates.shape[0]
    units, bounds = out[6 : 6 + n_units], out[6 + n_units :]
    if state.cells[cell, 0] == 0.0:
        state.pools[pool, 1] += 1.0
        state.choice[1] += 1.0
    has_units = True
    for column in range(n_units):
        has_units = has_units and units[column] > 0.0
    if state.pools[pool, 3] > 0.0 and has_units and n_candidates > 1 and out[2] <= out[3]:
        _learn_choice(state, kind, alpha, cell, pool, y, bounds)
        width = out[3] - out[2] if kind != ONE_SIDED else 1.0
        if width > 0.0:
            score = y - out[3] if kind == ONE_SIDED else max(out[2] - y, y - out[3])
            size = _learn_size(state, pool, 2 * n_units, min(abs(score) / width, LARGEST_SCORE))
            is_missed = y > out[5] or (kind != ONE_SIDED and y < out[4])
            gap = ((1.0 if is_missed else 0.0) - alpha) / delay
            _step(state, cell, pool, state.n_trackers - 1, FINAL_RATE * size, gap)
    _learn_scale(state, cell, pool, 0, min(abs(y - out[0] / 2 - out[1] / 2), LARGEST_ERROR))
    for column in range(n_units):
        transform = state.transforms[column]
        value, start = _forward(transform, y), _forward(transform, out[0])
        end = start if kind != SPREAD else _forward(transform, out[1])
        if has_units:
            _learn_scores(state, kind, alpha, cell, pool, delay, y, value, start, end, out, column)
        error = min(abs(value - start / 2 - end / 2), LARGEST_ERROR)
        _learn_scale(state, cell, pool, column + 1, error)
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
    for k in range(state.rates.size):
        low, high = bounds[2 * k], bounds[2 * k + 1]
        if kind == ONE_SIDED:
            is_covered, loss = y <= high, high + max(y - high, 0.0) / alpha
        else:
            is_covered = low <= y <= high
            loss = high - low + 2.0 / alpha * (max(low - y, 0.0) + max(y - high, 0.0))
        state.choice[3 + k] = state.choice[3 + k] * keep + min(loss / unit, LARGEST_SCORE)
        state.choice[3 + state.rates.size + k] = state.choice[3 + state.rates.size + k] * keep + (
            1.0 if is_covered else 0.0
        )


@_borrowing
def _learn_scores(state, kind, alpha, cell, pool, delay, y, value, start, end, out, column):
    """Add the scores of one transform to their distribution, and move its trackers."""
    n_units = state.transforms.size
    unit, bounds = out[6 + column], out[6 + n_units :]
    below, above = (start - value) / unit, (value - end) / unit
    below = min(max(below, -LARGEST_SCORE), LARGEST_SCORE)
    above = min(max(above, -LARGEST_SCORE), LARGEST_SCORE)
    score = above if kind == ONE_SIDED else max(below, above)
    both = max(abs(below), abs(above))
    one_size = _learn_size(state, pool, 2 * column, both)
    two_size = _learn_size(state, pool, 2 * column + 1, abs(below) / 2 + abs(above) / 2)
    tree = state.trees[pool, column]
    if column == 0:
        state.pools[pool, 4] *= 1.0 + 1.0 / (LONG_MEMORY * max(state.pools[pool, 1], 1.0))
        if state.pools[pool, 4] > 1e9:
            for other in range(n_units):
                for place in range(N_BINS):
                    state.trees[pool, other, place] /= state.pools[pool, 4]
            state.pools[pool, 4] = 1.0
    _add(tree, _bin_of(score), state.pools[pool, 4])
    for k in range(state.candidates.shape[0]):
        if state.candidates[k, 0] != column:
            continue
        n_sides, method, j = state.candidates[k, 1], state.candidates[k, 2], state.candidates[k, 3]
        for side in range(n_sides):
            own = score if n_sides == 1 else (below if side == 0 else above)
            state.pools[pool, 7 + 3 * state.n_units + 2 * state.n_trackers + j + side] = max(
                state.pools[pool, 7 + 3 * state.n_units + 2 * state.n_trackers + j + side], own
            )
            if state.pools[pool, 3] == 0.0 or out[2] > out[3]:
                continue
            is_low = kind != ONE_SIDED and y < bounds[2 * k]
            is_high = y > bounds[2 * k + 1]
            is_missed = is_low or is_high if n_sides == 1 else (is_low if side == 0 else is_high)
            gap = ((1.0 if is_missed else 0.0) - alpha / n_sides) / delay
            size = state.rates[k] * (one_size if n_sides == 1 else two_size)
            _step(state, cell, pool, j + side, -state.rates[k] if method == ACI else size, gap)


@_borrowing
def _start(state, alpha, pool):
    """Start the trackers of a pool at the quantile of the first scores, once there are enough."""
    if state.pools[pool, 2] <= max(9.0, state.pools[pool, 1]):
        return
    state.pools[pool, 3] = 1.0
    for k in range(state.candidates.shape[0]):
        column, n_sides, j = state.candidates[k, 0], state.candidates[k, 1], state.candidates[k, 3]
        for side in range(n_sides):
            if state.candidates[k, 2] == ACI:
                state.pools[pool, 7 + 3 * state.n_units + j + side] = alpha / n_sides
            else:
                tree, largest = (
                    state.trees[pool, column],
                    state.pools[pool, 7 + 3 * state.n_units + 2 * state.n_trackers + j],
                )
                state.pools[pool, 7 + 3 * state.n_units + j + side] = _quantile(
                    tree, 1.0 - alpha, largest
                )


@kernel
def run_online(state, kind, alpha, cells, pools, delays, times, low, high, known, y, order, out):
    """Issue rows in order of time, after learning from the truths that are known by then.

    Rows before `len(known) - len(times)` were issued before. `order` lists rows by when their
    truth is known, and `out` holds what was issued. Returns how many truths were learned from.
    """
    n_before = known.size - times.size
    n_settled = 0
    for i in range(times.size + 1):
        now = times[i] if i < times.size else -np.inf
        while n_settled < order.size and known[order[n_settled]] <= now:
            row = order[n_settled]
            _settle(state, kind, alpha, cells[row], pools[row], delays[row], y[row], out[row])
            n_settled += 1
        if i < times.size:
            row = n_before + i
            _issue(state, kind, alpha, cells[row], pools[row], low[row], high[row], out[row])
    return n_settled


@kernel
def settle_online(state, kind, alpha, cells, pools, delays, y, out):
    """Learn from the truths of rows, one after another."""
    for row in range(y.size):
        _settle(state, kind, alpha, cells[row], pools[row], delays[row], y[row], out[row])
