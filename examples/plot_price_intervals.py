"""
Intervals for a price
=====================

A model predicts the price of an apartment. A buyer asks how far off it may be, and expects an
answer that holds for expensive apartments too.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor

from dubito import ConformalRegressor, ErrorCosts, Normal, RegressionPolicy
from dubito.doubt import conditional_coverage

# %%
# Prices whose spread grows with the price, as real ones do; a model trained on 1,200 of them:

rng = np.random.default_rng(0)
area, age = rng.gamma(6, 12, 3600), rng.uniform(0, 80, 3600)
distance = rng.exponential(5, 3600)
features = np.stack([area, age, distance], axis=1)
expected = area * (60 - 0.2 * age) / (10 + distance) * 0.9
price = expected * np.exp(rng.normal(0, 0.08 + 0.03 * np.sqrt(distance)))
train, known, new = np.split(np.arange(3600), [1200, 2200])
model = GradientBoostingRegressor(n_estimators=60, random_state=0)
predicted = model.fit(features[train], price[train]).predict(features)

# %%
# The same width for all is not enough
# ------------------------------------
# Conformal prediction promises 90 % for any model. It does not promise it for each kind of
# apartment: one width for all covers nearly every cheap one, and too few expensive ones. The
# adaptive method estimates from half of the known apartments how the error grows with the
# prediction, and lets the width grow with it, so point predictions are enough. Coverage by
# predicted price, in fifths:

fixed = ConformalRegressor(level=0.9, method="absolute").fit(predicted[known], price[known])
adaptive = ConformalRegressor(level=0.9).fit(predicted[known], price[known])
for name, regressor in (("fixed width", fixed), ("adaptive", adaptive)):
    intervals = regressor.predict(predicted[new])
    covered, score = intervals.coverage(price[new]), intervals.interval_score(price[new])
    print(f"{name:<12} coverage {covered:.3f}, interval score {score:.0f}")
    for rows in np.array_split(np.argsort(predicted[new]), 5):
        low, high = predicted[new][rows[[0, -1]]]
        inside = regressor.predict(predicted[new][rows]).coverage(price[new][rows])
        print(f"  predicted {low:>4.0f} to {high:>5.0f}: {inside:.3f}")

# %%
# If nobody knows beforehand which rows are difficult, ``conditional_coverage`` searches: in bins of
# the predicted width, and for the worst slab, the rows between two parallel hyperplanes of
# features that are covered least (found on half of the rows, measured on the other half).

print(conditional_coverage(price[new], adaptive.predict(predicted[new]), features=features[new]))

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
rows = new[np.argsort(predicted[new])]
for ax, name, regressor in zip(axes, ("Fixed width", "Adaptive"), (fixed, adaptive), strict=True):
    intervals = regressor.predict(predicted[rows])
    is_missed = (price[rows] < intervals.low) | (price[rows] > intervals.high)
    ax.fill_between(predicted[rows], intervals.low, intervals.high, alpha=0.3)
    colors = np.where(is_missed, "tab:red", "0.4")
    ax.scatter(predicted[rows], price[rows], s=4, c=colors)
    ax.set(xlabel="Predicted price", title=f"{name}: {is_missed.mean():.1%} missed")
label = axes[0].set_ylabel("Price")

# %%
# From an interval to a bid
# -------------------------
# A bid that is too low loses the apartment, and one that is too high pays too much. Costs per unit
# of error make the decision: the quantile of lowest expected cost, or a valuer where the
# uncertainty is too large.

spread = Normal(predicted, 0.15 * predicted)  # a first guess, which the policy calibrates
bids = RegressionPolicy.fit(
    spread.take(known),
    price[known],
    costs=ErrorCosts.linear(under=3, over=1),
    review_cost=60,
)
print(bids.report)

# %%
# Deciding the 75 % quantile instead of the predicted price is what saves. Calibration adds nothing
# here: the guess of 15 % is a good one, and decisions on it would have cost about as much as those
# of the policy, whose calibrator is fitted anew in each fold.
#
# Quantile models, whole distributions and intervals without calibration rows: :doc:`/intervals`.
