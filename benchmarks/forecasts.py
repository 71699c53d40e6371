"""Intervals of forecasts over time: OnlineConformal and plain NumPy versions of its peers.

Reads files flusight_*.npz (weekly quantiles of many places; the truth of horizon h is known h + 1
weeks later; judged from the second season on) and series_*.npz (one-step point forecasts of several
models; judged from row `burn_in` on). Every method sees only truths that were known at the time.
Settings were chosen on the first season, the rows before `burn_in` and generated series, but the
judged rows of flusight_ensemble and series_daily_climate were looked at several times meanwhile:
other files are the fair check.

Usage: python -m benchmarks.forecasts FOLDER [--json]
       python -m benchmarks.forecasts --quick
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dubito import Quantiles
from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.doubt import OnlineConformal, PredictionIntervals

LEVEL = 0.9
ALPHA = 1 - LEVEL
WINDOW = 100  # rows of the rolling coverage
N_UPDATES, N_SERIES = 10_000_000, 1_000
MIN_SCORES = 20  # before a peer changes a forecast
OURS = "OnlineConformal"
Bounds = tuple[FloatArray, FloatArray]


class Panel(NamedTuple):
    """Weekly quantile forecasts of several places."""

    name: str
    week: IntArray
    place: IntArray
    horizon: IntArray
    low: FloatArray
    high: FloatArray
    y: FloatArray
    is_judged: BoolArray


class Series(NamedTuple):
    """Point forecasts of one model for one series."""

    name: str
    forecast: FloatArray
    y: FloatArray
    burn_in: int


class Result(NamedTuple):
    """Coverage, the interval score (of a panel relative to raw), and the least rolling coverage."""

    coverage: float
    score: float
    rolling: float | None = None
    seconds: float | None = None


def load_panels(folder: Path | None) -> Iterator[Panel]:
    """Yield the panels of a folder, or a generated one."""
    if folder is None:
        yield generated_panel()
        return
    for path in sorted(folder.glob("flusight_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            data = dict(file)
        text = data["reference_date"].astype(str)
        days = np.array([f"{one[:4]}-{one[4:6]}-{one[6:]}" for one in text], dtype="datetime64[D]")
        week = (days - days.min()).astype(int) // 7
        order = np.lexsort((data["horizon"], data["location"], week))
        ends = [int(np.argmin(np.abs(data["levels"] - q))) for q in (ALPHA / 2, 1 - ALPHA / 2)]
        low, high = (data["quantiles"][order, end].astype(float) for end in ends)
        month = days.astype("datetime64[M]").astype(int)
        season = (month - 7) // 12  # from August on
        yield Panel(
            path.stem,
            week[order],
            data["location"][order].astype(int),
            data["horizon"][order].astype(int),
            low,
            high,
            data["y"][order].astype(float),
            (season > season.min())[order],
        )


def generated_panel(n_weeks: int = 60, n_places: int = 8, seed: int = 0) -> Panel:
    """Return forecasts that are too narrow, of counts that rise and fall."""
    rng = np.random.default_rng(seed)
    week, place, horizon = (
        one.ravel() for one in np.meshgrid(range(n_weeks), range(n_places), range(2), indexing="ij")
    )
    level = 50 * (place + 1) * (1.5 + np.sin(2 * np.pi * (week + horizon) / 30))
    y = np.round(level * np.exp(rng.normal(0, 0.2, level.size)))
    low, high = level * math.exp(-0.22), level * math.exp(0.22)
    return Panel("generated", week, place, horizon, low, high, y, week >= n_weeks // 2)


def load_series(folder: Path | None) -> Iterator[Series]:
    """Yield the models of every series of a folder, or generated ones."""
    if folder is None:
        rng = np.random.default_rng(1)
        yield Series("generated", np.zeros(600), rng.normal(size=600), 200)
        return
    for path in sorted(folder.glob("series_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            data = dict(file)
        for column, model in enumerate(data["models"]):
            forecast = data["forecasts"][:, column]
            # Rows before a model's first forecast are 0 or NaN.
            is_there = np.isfinite(forecast) & (forecast != 0)
            first = int(np.argmax(is_there))
            name = f"{path.stem}, {model}"
            burn_in = int(data["burn_in"]) - first
            yield Series(name, forecast[first:], data["y"][first:].astype(float), burn_in)


# Peers on a panel: thresholds pooled over places, by horizon.


def refit(panel: Panel, forward: Callable[[Any], Any], backward: Callable[[Any], Any]) -> Bounds:
    """Return CQR intervals with the threshold refitted every week on all truths known."""
    return _by_week(panel, forward, backward, 0.0)


def pooled_aci(panel: Panel, forward: Any, backward: Any, rate: float = 0.01) -> Bounds:
    """Return CQR intervals at an error rate that moves by the mean error of a week, by horizon."""
    return _by_week(panel, forward, backward, rate)


def _by_week(panel: Panel, forward: Any, backward: Any, rate: float) -> Bounds:
    start, end, y = forward(panel.low), forward(panel.high), forward(panel.y)
    scores = np.maximum(start - y, y - end)
    low, high = panel.low.copy(), panel.high.copy()
    known = panel.week + panel.horizon + 1
    for horizon in np.unique(panel.horizon):
        is_ours = panel.horizon == horizon
        alpha, before = ALPHA, -1
        limits = np.zeros(len(y))
        for week in np.unique(panel.week):
            is_new = is_ours & (known > before) & (known <= week)
            if is_new.any():
                alpha += rate * (ALPHA - float(np.mean(scores[is_new] > limits[is_new])))
            before = week
            past = scores[is_ours & (known <= week)]
            now = is_ours & (panel.week == week)
            if past.size >= MIN_SCORES:
                fraction = min(max((1 - alpha) * (1 + 1 / past.size), 0.0), 1.0)
                limits[now] = np.quantile(past, fraction)
            low[now] = backward(start[now] - limits[now])
            high[now] = backward(end[now] + limits[now])
    return low, high


def unchanged(x: Any) -> Any:
    """Return a number itself."""
    return x


PANEL_METHODS: dict[str, Callable[[Panel], Bounds]] = {
    "uncalibrated": lambda one: (one.low, one.high),
    "weekly refit": lambda one: refit(one, unchanged, unchanged),
    "weekly refit, log1p": lambda one: refit(one, np.log1p, np.expm1),
    "ACI 0.01, pooled": lambda one: pooled_aci(one, unchanged, unchanged),
    "ACI 0.01, pooled, log1p": lambda one: pooled_aci(one, np.log1p, np.expm1),
    OURS: lambda one: ours_of_panel(one),
}


def ours_of_panel(panel: Panel) -> Bounds:
    """Return the intervals of OnlineConformal with its defaults."""
    quantiles = Quantiles(np.stack([panel.low, panel.high], axis=1), [ALPHA / 2, 1 - ALPHA / 2])
    found = OnlineConformal(LEVEL).replay(
        quantiles, panel.y, time=panel.week, series=panel.place, horizon=panel.horizon
    )
    assert isinstance(found, PredictionIntervals)
    return found.low, found.high


# Peers on one series of point forecasts, on absolute or signed errors.


def aci(one: Series, rate: float) -> Bounds:
    """Return ACI intervals from the quantile of all past absolute errors."""
    errors = np.abs(one.y - one.forecast)
    width, alpha = np.full(len(errors), np.inf), ALPHA
    for t in range(MIN_SCORES, len(errors)):
        if alpha > 1 / (t + 1):
            width[t] = np.quantile(errors[:t], 1 - min(alpha, 1.0), method="higher")
        alpha += rate * (ALPHA - (errors[t] > width[t]))
    return one.forecast - width, one.forecast + width


def tracking(one: Series, rate: float, is_signed: bool, ki: float = 0.0) -> Bounds:
    """Return intervals by quantile tracking, with an integral term if `ki` is above 0.

    The step is `rate` times the range of the last 100 scores; the saturation is that of the authors
    of the method, for which `ki` is in units of the largest error before `burn_in`.
    """
    errors = one.y - one.forecast
    scale = ki * float(np.abs(errors[: max(one.burn_in, 2)]).max())
    horizon = math.log(len(errors))
    csat = 2 / math.pi * (math.ceil(0.01 * horizon) - 1 / horizon)
    found = []
    for scores in (-errors, errors) if is_signed else (np.abs(errors),):
        alpha = ALPHA / 2 if is_signed else ALPHA
        limits, proportional, total = np.zeros(len(scores)), 0.0, 0.0
        for t in range(len(scores) - 1):
            gap = float(scores[t] > limits[t]) - alpha
            last = scores[max(t - WINDOW + 1, 0) : t + 1]
            proportional += rate * float(last.max() - last.min()) * gap
            total += gap
            angle = total * math.log(t + 2) / (csat * (t + 2))
            limits[t + 1] = proportional + scale * math.tan(min(max(angle, -1.57), 1.57))
        found.append(limits)
    return one.forecast - found[0], one.forecast + found[-1]


SERIES_METHODS: dict[str, Callable[[Series], Bounds]] = {
    "ACI 0.005": lambda one: aci(one, 0.005),
    "ACI 0.01": lambda one: aci(one, 0.01),
    "tracking 0.1, absolute errors": lambda one: tracking(one, 0.1, False),
    "tracking 0.1, signed errors": lambda one: tracking(one, 0.1, True),
    "PI 0.1, absolute errors": lambda one: tracking(one, 0.1, False, ki=1.0),
    "PI 0.1, signed errors": lambda one: tracking(one, 0.1, True, ki=1.0),
    OURS: lambda one: ours_of_series(one),
}


def ours_of_series(one: Series) -> Bounds:
    """Return the intervals of OnlineConformal with its defaults."""
    found = OnlineConformal(LEVEL).replay(one.forecast, one.y)
    assert isinstance(found, PredictionIntervals)
    return found.low, found.high


def interval_scores(bounds: Bounds, y: FloatArray) -> FloatArray:
    """Return the Winkler score of each row."""
    low, high = bounds
    misses = np.maximum(low - y, 0) + np.maximum(y - high, 0)
    return np.asarray(high - low + 2 / ALPHA * misses)


def panel_result(panel: Panel, run: Callable[[Panel], Bounds]) -> Result:
    """Return coverage, and the geometric mean over places of the score relative to raw."""
    start = time.process_time()
    bounds = run(panel)
    seconds = time.process_time() - start
    scores = interval_scores(bounds, panel.y)
    raw = interval_scores((panel.low, panel.high), panel.y)
    ratios = []
    for place in np.unique(panel.place):
        rows = panel.is_judged & (panel.place == place)
        if rows.any():
            ratios.append(math.log(scores[rows].mean() / raw[rows].mean()))
    is_covered = (bounds[0] <= panel.y) & (panel.y <= bounds[1])
    coverage = float(is_covered[panel.is_judged].mean())
    return Result(coverage, math.exp(np.mean(ratios)), seconds=seconds)


def series_result(one: Series, run: Callable[[Series], Bounds]) -> Result:
    """Return coverage, mean score and least rolling coverage from `burn_in` on."""
    start = time.process_time()
    low, high = run(one)
    seconds = time.process_time() - start
    judged = slice(one.burn_in, None)
    is_covered = ((low <= one.y) & (one.y <= high))[judged]
    rolling = np.convolve(is_covered, np.full(WINDOW, 1 / WINDOW), "valid").min()
    score = float(interval_scores((low, high), one.y)[judged].mean())
    return Result(float(is_covered.mean()), score, float(rolling), seconds)


def speed(n_updates: int, n_series: int) -> dict[str, float]:
    """Return CPU seconds of updates over many series, by method; the kernel is compiled before."""
    rng = np.random.default_rng(0)
    n_steps = n_updates // n_series
    times = np.repeat(np.arange(n_steps), n_series)
    series = np.tile(np.arange(n_series), n_steps)
    forecasts = np.zeros(times.size)
    y = rng.standard_normal(times.size)
    seconds: dict[str, float] = {}
    methods: tuple[Literal["auto", "aci"], ...] = ("auto", "aci")
    for method in methods:
        online = OnlineConformal(LEVEL, method=method)
        online.replay(np.zeros(2), np.zeros(2))
        online = OnlineConformal(LEVEL, method=method)
        start = time.process_time()
        online.replay(forecasts, y, time=times, series=series)
        seconds[method] = time.process_time() - start
    return seconds


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="small generated data")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if (options.folder is None) != options.quick:
        parser.error("pass a folder, or --quick")
    panels, series = list(load_panels(options.folder)), list(load_series(options.folder))
    if not (panels or series):
        parser.error(f"{options.folder} has no files flusight_*.npz or series_*.npz")
    ours_of_series(Series("warm-up", np.zeros(2), np.zeros(2), 0))
    by_panel = {
        one.name: {name: panel_result(one, run) for name, run in PANEL_METHODS.items()}
        for one in panels
    }
    by_series = {
        one.name: {name: series_result(one, run) for name, run in SERIES_METHODS.items()}
        for one in series
    }
    n_updates = 100_000 if options.quick else N_UPDATES
    seconds = speed(n_updates, 100 if options.quick else N_SERIES)
    if options.json:
        plain = {
            kind: {
                name: {method: row._asdict() for method, row in rows.items()}
                for name, rows in table.items()
            }
            for kind, table in (("panels", by_panel), ("series", by_series))
        }
        print(json.dumps({**plain, "updates": n_updates, "cpu_seconds": seconds}, indent=1))
        return
    for title, table in (("score / raw", by_panel), ("score", by_series)):
        for name, rows in table.items():
            print(f"{name:<44} {'coverage':>8} {title:>12} {'rolling':>8} {'CPU s':>7}")
            for method, row in rows.items():
                rolling = "" if row.rolling is None else f"{row.rolling:.2f}"
                print(
                    f"  {method:<42} {row.coverage:>8.3f} {row.score:>12.3f} {rolling:>8} "
                    f"{row.seconds:>7.2f}"
                )
            print()
    for method, one in seconds.items():
        print(f"{n_updates:,} updates, method={method!r}: {one:.2f} s of CPU")


if __name__ == "__main__":
    main()
