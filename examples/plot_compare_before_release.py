"""
Compare two models before a release
===================================

The new model ranks a little better on the validation set. Is that luck? Is it as well calibrated?
And what does it change for the decisions, which are what anyone pays for?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from dubito import CostMatrix
from dubito.monitor import compare
from dubito.report import ReliabilityDisplay

# %%
# The old model is a logistic regression. The new one adds all products of two features, and
# hardly any regularization.

X, y = make_classification(3000, 20, n_informative=8, flip_y=0.1, class_sep=0.9, random_state=1)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=2000, random_state=0)
old = LogisticRegression().fit(X_train, y_train)
new = make_pipeline(PolynomialFeatures(2), LogisticRegression(C=0.5, max_iter=5000))
new.fit(X_train, y_train)
models = {"old": old.predict_proba(X_test), "new": new.predict_proba(X_test)}

# %%
# Paired differences
# ------------------
# Both models err on many of the same rows, so the interval of the *difference* is much narrower
# than those of the two figures. With costs, the comparison includes what the decisions cost.

costs = CostMatrix.from_errors(false_positive=1, false_negative=5).with_reject(0.4)
found = compare(y_test, models, costs=costs)
print(found)

# %%
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
shown = [one for one in found.differences if np.isfinite(one.interval.value)]
for height, one in enumerate(shown):
    middle, low, high = one.interval.value, one.interval.low, one.interval.high
    color = "tab:green" if one.is_better else "0.5" if one.is_better is None else "tab:red"
    ax.plot([low, high], [height, height], color=color, lw=2)
    ax.plot(middle, height, "o", color=color)
ax.axvline(0, color="0.3", lw=0.8)
ax.set_yticks(range(len(shown)), [one.metric.replace("_", " ") for one in shown])
text = ax.set(
    xlabel="New minus old, 95 % interval", title="Green: better, red: worse, gray: undecided"
)

# %%
# Two reliability diagrams on the same axes show where the difference is:

display = ReliabilityDisplay.from_predictions(y_test, models["old"], name="old")
display = ReliabilityDisplay.from_predictions(y_test, models["new"], name="new", ax=display.ax_)

# %%
# The release gate in one line, exit code 1 if anything is significantly worse: ``dubito compare
# old.csv new.csv --fail-on 'worse.*>0'``. More in :doc:`/guide/monitor`.
