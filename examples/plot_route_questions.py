"""
Route a question to a larger model
==================================

A small language model answers for a fifth of a cent, a large one for about 12 cents and is right
more often. A wrong answer costs a dollar, and an answer by a person 30 cents. Which questions
deserve the larger model (LLM routing)?
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import Cascade, TopLabel
from dubito.data import make_questions

# %%
# 600 questions that both models have answered, with each model's confidence and whether it was
# correct. The answers themselves are not needed.

known, new, large = make_questions()
outputs = {
    name: TopLabel(known[f"conf_{name}"], known[f"ok_{name}"]) for name in ("small", "large")
}
for name, one in outputs.items():
    stated, correct = one.confidence.mean(), one.correct.mean()
    print(f"{name}: mean confidence {stated:.3f}, accuracy {correct:.3f}")

# %%
# Both are over-confident, so a fixed rule such as "ask the large one below 0.9" has no meaning
# before calibration. ``Cascade.fit`` calibrates both, learns what the large model would add, and
# chooses the order of the calls and the thresholds; every figure is of rows held out.

cascade = Cascade.fit(
    outputs,
    costs={"small": 0.002, "large": known["cost_large"]},
    review_cost=0.3,
    review_error_rate=0.02,
)
print(cascade.report)

# %%
# Three zones of the small model's confidence: hopeless questions go straight to a person, uncertain
# ones to the large model, and the rest are answered. A longer question costs more, which moves the
# thresholds.

confidence = np.linspace(0.05, 0.999, 150)
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
prices = (0.05, 0.12, 0.3)
for height, price in enumerate(prices):
    decided = cascade.decide({"small": confidence}, costs={"large": price})
    actions = np.array(decided.actions)[decided.action]
    colors = {"review": "tab:orange", "call large": "tab:purple", "answer small": "tab:blue"}
    for action, color in colors.items():
        here = confidence[actions == action]
        style = {"s": 40, "marker": "s", "label": action if height == 1 else None}
        ax.scatter(here, np.full(here.size, height), color=color, **style)
ax.set_yticks(range(3), [f"large costs {price}" for price in prices])
ax.set(xlabel="Confidence of the small model", ylim=(-0.6, 2.9))
legend = ax.legend(loc="upper center", ncols=3)

# %%
# New questions, one call at a time
# ---------------------------------
# In a service the second output is needed only where it is asked for:

print(cascade.decide({"small": 0.7}))
print(cascade.decide({"small": 0.7, "large": 0.96}))
first = cascade.decide({"small": new["conf_small"]}, costs={"large": new["cost_large"]})
print(first)

# %%
# From files, with ``dubito cascade``: :doc:`/cascade`.
