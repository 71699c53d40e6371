"""
Correct the intervals of forecasts
==================================

Five hospitals get forecasts of their admissions every week, with intervals that are meant to
cover 90 %. They cover less than two thirds. The model is not ours to refit, and the outcomes
arrive weeks later.
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import OnlineConformal, Quantiles
from dubito.data import make_forecasts

# %%
# 80 weeks, three horizons. An outcome is ``None`` where it is still unknown.

rows = make_forecasts()
is_known = np.array([value is not None for value in rows["admissions"]])
actual = np.array([np.nan if value is None else float(value) for value in rows["admissions"]])
quantiles = np.stack([rows["q_0.05"], rows["q_0.5"], rows["q_0.95"]], axis=1)
is_inside = (actual >= quantiles[:, 0]) & (actual <= quantiles[:, 2])
print(f"As forecast, {is_inside[is_known].mean():.1%} of {is_known.sum():,} outcomes are covered.")

# %%
# Learn from each outcome when it arrives
# ---------------------------------------
# ``predict`` gives an interval for each forecast; ``update`` learns from outcomes, in whatever
# order they come. After misses intervals widen, so that the long-run coverage is 90 % without
# assumptions about the future.

online = OnlineConformal(level=0.9)
weeks = np.unique(rows["date"])
low, high = np.full(actual.size, np.nan), np.full(actual.size, np.nan)
for number, week in enumerate(weeks):
    today = np.flatnonzero(rows["date"] == week)
    ids = [f"{rows['hospital'][k]}, {week}, {rows['horizon'][k]}" for k in today]
    found = online.predict(
        Quantiles(quantiles[today], [0.05, 0.5, 0.95]),
        series=rows["hospital"][today],
        horizon=rows["horizon"][today],
        ids=ids,
    )
    low[today], high[today] = found.low, found.high
    for horizon in range(min(number, 2) + 1):  # what this week's count settles
        then = weeks[number - horizon]
        due = (rows["date"] == then) & (rows["horizon"] == horizon) & is_known
        names = [f"{place}, {then}, {horizon}" for place in rows["hospital"][due]]
        online.update(actual[due], ids=names)

is_covered = (actual >= low) & (actual <= high)
later = is_known & (rows["date"] >= weeks[10])
print(f"Corrected, {is_covered[later].mean():.1%} of {later.sum():,} outcomes after ten weeks.")

# %%
# Coverage over time, and one hospital's intervals
# ------------------------------------------------

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), layout="constrained")
place = rows["hospital"][0]
shown = (rows["hospital"] == place) & (rows["horizon"] == 0) & is_known
week_numbers = np.searchsorted(weeks, rows["date"][shown])
top.fill_between(week_numbers, low[shown], high[shown], alpha=0.25, label="corrected")
top.fill_between(
    week_numbers, quantiles[shown, 0], quantiles[shown, 2], alpha=0.45, label="uncorrected"
)
top.plot(week_numbers, actual[shown], "k.", ms=4, label="admissions")
top.set(title=f"Hospital {place}, this week", ylabel="Admissions")
top.legend()
for name, hit in (("uncorrected", is_inside), ("corrected", is_covered)):
    by_week = [hit[(rows["date"] == week) & is_known].mean() for week in weeks[:-3]]
    smooth = np.convolve(by_week, np.ones(10) / 10, mode="valid")
    bottom.plot(np.arange(9, 9 + smooth.size), smooth, label=name)
bottom.axhline(0.9, color="0.6", lw=0.8)
bottom.set(xlabel="Week", ylabel="Coverage of 10 weeks", ylim=(0.3, 1))
legend = bottom.legend()

# %%
# The state is JSON: ``online.to_dict()`` continues tomorrow, ``dubito forecast --state`` does it
# on files, and ``dubito serve`` over HTTP. More in :doc:`/forecasts`.
