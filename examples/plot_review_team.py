"""
A review team of five
=====================

2,000 moderation cases a day, five reviewers with different skills and prices, and room for 430
reviews. Who should see which case, and is a sixth reviewer worth hiring?
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import CostMatrix
from dubito.decide import Reviewer, ReviewTeam

# %%
# The model's calibrated probabilities of harm, and what mistakes cost: harm that stays online
# costs 10, a good post that is removed 2.

rng = np.random.default_rng(0)
harm = rng.beta(0.5, 4.0, 2000)
probabilities = np.stack([1 - harm, harm], axis=1)
is_harmful = rng.random(2000) < harm
costs = CostMatrix([[0, 10], [2, 0]], actions=["keep", "remove"], classes=["good", "harmful"])

# %%
# The team
# --------
# A senior who hardly errs, three juniors, and a specialist who knows harm when she sees it but
# often takes satire for harm.

team = ReviewTeam(
    [
        Reviewer("senior", capacity=50, error_rate=0.02, cost=0.6, rows_per_hour=10),
        Reviewer("junior a", capacity=100, error_rate=0.10, cost=0.2, rows_per_hour=20),
        Reviewer("junior b", capacity=100, error_rate=0.12, cost=0.2, rows_per_hour=20),
        Reviewer("junior c", capacity=100, error_rate=0.25, cost=0.2, rows_per_hour=20),
        Reviewer("specialist", capacity=80, error_rate={"good": 0.20, "harmful": 0.01}, cost=0.3),
    ],
    classes=["good", "harmful"],
)
plan = team.plan(probabilities, costs)
print(plan)

# %%
# A review is worth the expected cost that it saves. The plan of highest total value within all
# capacities is a linear program, and its *shadow price* is what one more review by each of them
# would save: the price at which to hire.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=[2, 1])
values = team.values(probabilities, costs)
for k, name in enumerate(team.names):
    rows = plan.reviewer == k
    left.scatter(harm[rows], values[rows, k], s=10, label=f"{name} ({rows.sum()})")
left.set(xlabel="P(harmful)", ylabel="Value of the review", title="Who sees which case")
left.legend(fontsize=8)
right.barh(team.names, plan.shadow_prices, color="tab:blue")
right.invert_yaxis()
text = right.set(xlabel="Saved per additional review", title="Shadow prices")

# %%
# Does it pay?
# ------------
# Compare with the usual rule: the most uncertain cases first, to whoever is free.

saved = plan.saving
order = np.argsort(-np.minimum(harm, 1 - harm))[: team.capacities.sum()]
whom = rng.permutation(np.repeat(np.arange(5), team.capacities))
usual = values[order, whom].sum()
print(f"planned reviews save {saved:.0f} a day, the most uncertain first {usual:.0f}")

# %%
# Cases that arrive one by one
# ----------------------------
# The shadow prices alone decide a stream: each case goes to the reviewer whose value net of the
# price is highest, never above anyone's capacity.

queue = plan.team.queue(n_expected=2000)
streamed = queue.assign(values)
total = values[np.flatnonzero(streamed >= 0), streamed[streamed >= 0]].sum()
print(f"decided one by one: {total / saved:.1%} of what the plan saves")

# %%
# Learn how reviewers err
# -----------------------
# Stated error rates are guesses. Answers whose truth became known later correct them; what was
# stated counts as 20 answers in each class:

who = rng.choice(["junior a", "junior c"], 300)
truth = is_harmful[:300].astype(int)
wrong = rng.random(300) < np.where(who == "junior a", 0.18, 0.08)  # not what was stated
learned = team.learn(who, truth, np.where(wrong, 1 - truth, truth), n_classes=2)
for name in ("junior a", "junior c"):
    known = learned.answerers(("good", "harmful"), 2)[team.names.index(name)]
    print(f"{name}: error rate {1 - np.diag(known.likelihoods).mean():.2f}")
