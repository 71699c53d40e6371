"""
Detect inputs that the network never saw
========================================

A network that learned clothes will name a garment for a picture of a digit, often with
confidence. Which score notices, and where is its threshold, if only rows of the known kind are
available?
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import Logits
from dubito.data import load_fashion_mnist
from dubito.doubt import (
    ConformalOutlierDetector,
    MahalanobisDistance,
    diagnose_ood,
    least_confidence,
)
from dubito.measure import false_positive_rate_at_recall, roc_auc

# %%
# A network trained on eight kinds of clothes; digits, unseen garments and corrupted images are
# out of distribution (OOD). The sample ships with dubito: logits, features of the last layer, and
# labels.

sample = load_fashion_mnist()
known = Logits(sample.test_logits)
unknown = {
    "digits": (sample.digits_logits, sample.digits_features),
    "unseen classes": (sample.unseen_classes_logits, sample.unseen_classes_features),
    "corrupted": (sample.corrupted_logits, sample.corrupted_features),
}
print(diagnose_ood(known, Logits(sample.digits_logits)))

# %%
# Two scores: one minus the largest softmax probability (MSP), and the Mahalanobis distance of the
# features to the nearest class. FPR95 is used here as in papers on OOD detection: the fraction of
# OOD inputs that are accepted where 95 % of the known ones are. So known inputs are the
# positives, and the score is negated.

features, labels = sample.validation_features, sample.validation_labels
distance = MahalanobisDistance(normalize=True, relative=True).fit(features[:2000], labels[:2000])
for name, (logits, its_features) in unknown.items():
    is_ood = np.repeat([0, 1], [len(sample.test_logits), len(logits)])
    for score, inside, outside in (
        ("1 - MSP", least_confidence(known), least_confidence(Logits(logits))),
        ("Mahalanobis", distance.score(sample.test_features), distance.score(its_features)),
    ):
        both = np.concatenate([inside, outside])
        auroc, fpr = roc_auc(is_ood, both), false_positive_rate_at_recall(1 - is_ood, -both)
        print(f"{name:<15} {score:<12} AUROC {auroc:.3f}  FPR95 {fpr:.3f}")

# %%
# A threshold with a guarantee
# ----------------------------
# No OOD rows are needed to set the threshold. A conformal p-value compares a row with held-out
# known rows; at ``alpha=0.05``, at most 5 % of known inputs are flagged in expectation, whatever
# the score.

detector = ConformalOutlierDetector(alpha=0.05).fit(distance.score(features[2000:]))
flagged = {"known": detector.predict(distance.score(sample.test_features)).mean()}
for name, (_, its_features) in unknown.items():
    flagged[name] = detector.predict(distance.score(its_features)).mean()

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
bins = np.linspace(*np.quantile(distance.score(sample.test_features), [0, 0.999]), 50)
left.hist(distance.score(sample.test_features), bins, density=True, alpha=0.5, label="known")
for name, (_, its_features) in unknown.items():
    left.hist(distance.score(its_features), bins, density=True, histtype="step", lw=1.5, label=name)
left.set(xlabel="Relative Mahalanobis distance", ylabel="Density")
left.legend()
right.barh(list(flagged), [100 * value for value in flagged.values()])
right.axvline(5, color="0.3", ls="--", lw=0.8)
right.invert_yaxis()
text = right.set(xlabel="Flagged, percent (5 % of known ones promised)")

# %%
# In a policy this is a gate: ``Policy.fit(..., features=features, ood=OODGate(distance))`` sends
# such rows to review. No score is best everywhere; :doc:`/guide/doubt` says where to start, and
# ``fooling_inputs.py`` in :doc:`/scripts` optimizes noise until a network is certain of it.
