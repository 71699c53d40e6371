"""
Approve a loan, with official costs
===================================

The Statlog German credit data come with a cost matrix: accepting a bad applicant costs 5,
rejecting a good one 1. Nearly every tutorial then predicts the more probable class, which ignores
it. Here the official costs decide.

The applicants of this page are generated, as many as in the data set and with as many bad ones,
so that the script runs offline; ``docs/credit_costs.txt`` has the figures of the real data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from dubito import CostMatrix
from dubito.decide import CostSensitiveClassifier, optimal_actions, realized_cost

# %%
# 1,000 applicants, 30 % of them bad, and a model that most people would use:

X, y = make_classification(
    3000, 20, n_informative=6, weights=[0.7], flip_y=0.15, class_sep=0.8, random_state=0
)
X_train, X_new, y_train, y_new = train_test_split(X, y, train_size=1000, random_state=0, stratify=y)
forest = RandomForestClassifier(40, random_state=0).fit(X_train, y_train)
costs = CostMatrix.from_errors(
    false_positive=1, false_negative=5, classes=["good", "bad"], pos_label="bad"
)
print(costs.array)

# %%
# Three ways to use the same forest
# ---------------------------------
# The most probable class; the action of lowest expected cost by the forest's own probabilities;
# and the same after calibration on held-out folds, which is what ``CostSensitiveClassifier``
# does.

p = forest.predict_proba(X_new)
decider = CostSensitiveClassifier(
    RandomForestClassifier(40, random_state=0),
    CostMatrix.from_errors(false_positive=1, false_negative=5),
).fit(X_train, y_train)
actions = {
    "more probable class": p.argmax(axis=1),
    "expected cost, uncalibrated": optimal_actions(p, costs),
    "expected cost, calibrated": decider.predict(X_new),
}
paid = {name: realized_cost(y_new, np.asarray(taken), costs) for name, taken in actions.items()}
for name, cost in paid.items():
    print(f"{name:<28} {cost:.3f} per applicant")

# %%
# Costs of 5 to 1 put the threshold at 1 / 6: an applicant is rejected if P(bad) is above 0.167.
# The curve shows what any other threshold would have cost. The expected-cost decisions find the
# bottom without having seen it.

thresholds = np.linspace(0.01, 0.9, 90)
curve = [realized_cost(y_new, (p[:, 1] > t).astype(int), costs) for t in thresholds]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(thresholds, curve, color="0.5", label="any threshold on the forest's P(bad)")
for (name, cost), marker in zip(paid.items(), "sDo", strict=True):
    ax.axhline(cost, color="0.85", lw=0.8)
    rejected = np.asarray(actions[name]).mean()
    ax.plot(np.quantile(p[:, 1], 1 - rejected), cost, marker, ms=8, label=f"{name}: {cost:.3f}")
ax.set(xlabel="Threshold on P(bad)", ylabel="Cost per applicant")
legend = ax.legend()

# %%
# An officer for the doubtful ones
# --------------------------------
# Suppose that an officer decides correctly for 0.6. Abstaining is one more row of the costs:

with_officer = CostMatrix.from_errors(false_positive=1, false_negative=5).with_reject(
    0.6, "officer"
)
team = CostSensitiveClassifier(RandomForestClassifier(40, random_state=0), with_officer)
taken = team.fit(X_train, y_train).predict(X_new)
names, counts = np.unique(np.array(taken, dtype=object).astype(str), return_counts=True)
print(dict(zip(names.tolist(), counts.tolist(), strict=True)))

# %%
# Costs as expressions of columns (the amount of the loan, say), priors that change, and the
# policy file are in :doc:`/guide/decide` and :doc:`/guide/policy`.
