"""
Triage chest X-rays
===================

A network gives each image eight probabilities, one per finding. None excludes another, some
labels were never written down, and a missed finding costs more than a false one. Which findings
can be reported without a second look, and which images should a radiologist open?
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import LabelCosts, MultiLabel, MultiLabelCalibrator, MultiLabelPolicy, audit
from dubito.data import make_findings
from dubito.doubt import MultiLabelRiskControl

# %%
# 4,000 images with labels
# ------------------------
# A blank cell is a finding that the report does not mention, ``u`` one that the radiologist
# was uncertain about. Both are unknown here, and left out finding by finding.

sample = make_findings()
names = list(sample.names)


def probabilities(rows: dict[str, np.ndarray]) -> MultiLabel:
    """Return the declared outputs of some rows."""
    return MultiLabel(np.stack([rows[f"p_{name}"] for name in names], axis=1), names)


def labels(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Return 1, 0 or NaN per finding."""
    known = {"0": 0.0, "1": 1.0}
    columns = [[known.get(str(cell), np.nan) for cell in rows[f"y_{name}"]] for name in names]
    return np.array(columns).T


outputs, y = probabilities(dict(sample.labeled)), labels(dict(sample.labeled))
found = audit(y, outputs)
print(found.verdict)

# %%
# Calibrate all findings at once
# ------------------------------
# Maps of rare findings are drawn towards a common one, so that ten positives do not make a map.

calibrator = MultiLabelCalibrator().fit(outputs.take(slice(2000)), y[:2000])
before, after = (
    outputs.take(slice(2000, 4000)),
    calibrator.transform(outputs.take(slice(2000, 4000))),
)
held_out = y[2000:]
fig, axes = plt.subplots(2, 4, figsize=(9, 4.8), sharex=True, sharey=True, layout="constrained")
for k, (ax, name) in enumerate(zip(axes.flat, names, strict=True)):
    is_known = ~np.isnan(held_out[:, k])
    for model, color in ((before, "tab:red"), (after, "tab:blue")):
        p, truth = model.array[is_known, k], held_out[is_known, k]
        bins = np.array_split(np.argsort(p), 8)
        stated, observed = [p[b].mean() for b in bins], [truth[b].mean() for b in bins]
        ax.plot(stated, observed, "o-", ms=3, lw=1, color=color)
    ax.plot([0, 1], [0, 1], color="0.7", lw=0.8)
    ax.set_title(name, fontsize=9)
fig.supxlabel("Mean probability")
label = fig.supylabel("Observed frequency")
title = fig.suptitle("Red: uncalibrated, too extreme. Blue: calibrated on other images.")

# %%
# Decide, or send to review
# -------------------------
# A missed finding costs 4, a false one 1. A review of one finding costs 0.6, and one of the
# whole image, with all of its findings, 3.

costs = LabelCosts(false_positive=1, false_negative=4, review=0.6, review_row=3)
policy = MultiLabelPolicy.fit(outputs, y, costs=costs)
print(policy.report)

# %%
decisions = policy.decide(probabilities(dict(sample.new)))
print(decisions)

# %%
# Or guarantee a recall
# ---------------------
# Instead of costs, you can set a recall: on average, at least 90 % of the true findings of an
# image are to be in its set. Conformal risk control takes the highest threshold that ensures it.

control = MultiLabelRiskControl("recall", 0.9).fit(after, held_out)
sets = control.predict(calibrator.transform(probabilities(dict(sample.new))))
print(f"{sets.sizes.mean():.2f} findings per image; the first image: {sets.names(0)}")

# %%
# The same from files, with sites compared and the reviewers' list: :doc:`/multilabel`.
