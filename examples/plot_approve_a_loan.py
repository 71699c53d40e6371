"""
Approve a loan, with official costs
===================================

The Statlog German credit data come with a cost matrix: accepting a bad applicant costs 5,
declining a good one 1. Nearly every tutorial then predicts the more probable class, which ignores
it. Here the official costs decide.

The applicants of this page are generated, with as many bad ones as in the data set (30 %), so that
the script runs offline; ``docs/credit_costs.txt`` has the figures of the real data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from dubito import CostMatrix
from dubito.decide import CostSensitiveClassifier, optimal_actions, realized_cost

# %%
# 3,000 applicants, 1,000 of them to learn from, and a model that most people would use:

X, is_bad = make_classification(
    3000, 20, n_informative=6, weights=[0.7], flip_y=0.15, class_sep=0.8, random_state=0
)
y = np.where(is_bad, "bad", "good")
X_train, X_new, y_train, y_new = train_test_split(X, y, train_size=1000, random_state=0, stratify=y)
forest = RandomForestClassifier(40, random_state=0).fit(X_train, y_train)
costs = CostMatrix([[5, 0], [0, 1]], actions=["approve", "decline"], classes=["bad", "good"])
print(f"{'costs':<8} {'bad':>4} {'good':>4}")
for action, row in zip(costs.actions, costs.array, strict=True):
    print(f"{action:<8} {row[0]:>4g} {row[1]:>4g}")

# %%
# Three ways to use the same forest
# ---------------------------------
# The most probable class; the action of lowest expected cost by the forest's own probabilities;
# and the same after calibration on held-out folds, which is what ``CostSensitiveClassifier``
# does.

p = forest.predict_proba(X_new)
decider = CostSensitiveClassifier(RandomForestClassifier(40, random_state=0), costs)
names = np.array(costs.actions)
actions = {
    "more probable class": np.where(p[:, 0] > 0.5, "decline", "approve"),
    "expected cost, uncalibrated": names[optimal_actions(p, costs)],
    "expected cost, calibrated": decider.fit(X_train, y_train).predict(X_new),
}
paid = {name: realized_cost(y_new, taken, costs) for name, taken in actions.items()}
for name, cost in paid.items():
    print(f"{name:<28} {cost:.3f} per applicant")

# %%
# Costs of 5 to 1 put the threshold at 1 / 6: an applicant is declined if P(bad) is above 0.167.
# The curve shows what any other threshold would have cost. The expected-cost decisions find the
# bottom without having seen it.

thresholds = np.linspace(0.01, 0.9, 90)
curve = [realized_cost(y_new, names[(p[:, 0] > t).astype(int)], costs) for t in thresholds]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(thresholds, curve, color="0.5", label="any threshold on the forest's P(bad)")
for (name, cost), marker in zip(paid.items(), "sDo", strict=True):
    ax.axhline(cost, color="0.85", lw=0.8)
    declined = (actions[name] == "decline").mean()
    ax.plot(np.quantile(p[:, 0], 1 - declined), cost, marker, ms=8, label=f"{name}: {cost:.3f}")
ax.set(xlabel="Threshold on P(bad)", ylabel="Cost per applicant")
legend = ax.legend()

# %%
# An officer for uncertain cases
# ------------------------------
# Suppose that an officer always decides correctly, at a cost of 0.6. Abstaining is one more row of
# the costs:

with_officer = costs.with_reject(0.6, "officer")
team = CostSensitiveClassifier(RandomForestClassifier(40, random_state=0), with_officer)
taken = team.fit(X_train, y_train).predict(X_new)
for name in with_officer.actions:
    print(f"{name:<8} {(taken == name).sum():>5,} of {len(taken):,} applicants")
print(f"{realized_cost(y_new, taken, with_officer):.3f} per applicant")

# %%
# Costs as expressions of columns (the amount of the loan, say), priors that change, and the
# policy file are in :doc:`/guide/decide` and :doc:`/guide/policy`.
