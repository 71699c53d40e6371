"""
Block a payment
===============

A model gives each card payment a probability of fraud. Most payments are legitimate, a missed
fraud costs its amount, a blocked legitimate payment annoys a customer, and an analyst can review
some. From which probability on should a payment be blocked, and which ones should be reviewed?
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import CostMatrix, Policy, Probabilities, audit
from dubito.data import load_payments

# %%
# First: is P(fraud) calibrated?
# ------------------------------
# A cost is multiplied by a probability, so the probability must be right, not only well ranked.
# These 15,000 payments are known to be legitimate or fraud:

payments = load_payments()
known, new = payments.labeled, payments.new
outputs = Probabilities(known["p"], ["legit", "fraud"])  # with labels 0 and 1: classes=[0, 1]
found = audit(known["label"], outputs, pos_label="fraud")
positive = found.positive
print(found.verdict)
print(f"ROC-AUC {positive.roc_auc:.3f}")
in_range = (known["p"] >= 0.01) & (known["p"] < 0.03)
rate = (known["label"][in_range] == "fraud").mean()
print(f"Where P(fraud) is 1 % to 3 %: {100 * rate:.1f} % fraud of {in_range.sum()} payments")

# %%
# It ranks well, but it is not calibrated: it is too low on average, and far too low where
# decisions are made. A threshold at 2 % would pass payments that are fraud several
# times as often.
#
# What do mistakes cost?
# ----------------------
# Costs are a table of actions and classes. A cell may be an expression of columns: a fraud that
# passes costs what the payment was worth.

costs = CostMatrix(
    [[0, "amount"], [5, 0]], actions=["pass", "block"], classes=["legit", "fraud"]
).with_reject(2, "review")
policy = Policy.fit(
    outputs,
    known["label"],
    costs=costs,
    row_costs={"amount": known["amount"]},
    pos_label="fraud",
    current=0.5,
)
print(policy.report)

# %%
# The report is out of sample: each payment was decided with a calibrator that had not seen it. It
# compares with what is done today, blocking from 0.5 on.
#
# Decide new payments
# -------------------
# The threshold moves with the amount. A payment of 20 is hardly worth a look, one of 500 is worth
# a review at a probability of half a percent.

decisions = policy.decide(
    Probabilities(new["p"], ["legit", "fraud"]), row_costs={"amount": new["amount"]}
)
print(decisions)

probability = decisions.probabilities[:, 1]
action = np.array(decisions.columns()["action"])
fig, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, color in (("pass", "tab:blue"), ("review", "tab:orange"), ("block", "tab:red")):
    rows = action == name
    label = f"{name} ({rows.sum():,})"
    ax.scatter(new["amount"][rows], probability[rows], s=6, alpha=0.5, color=color, label=label)
ax.set(xscale="log", yscale="log", xlabel="Amount", ylabel="Calibrated P(fraud)")
ax.set_title("The larger the payment, the smaller the doubt that is worth a review")
legend = ax.legend(markerscale=3)

# %%
# Take it with you
# ----------------
# ``policy.save("policy.json")`` writes one file, and ``dubito decide policy.json new.csv`` or
# ``dubito serve policy.json`` decide with it. The same task on the command line, with fairness by
# region and a report to forward, is in :doc:`/fraud`.
