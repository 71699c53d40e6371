"""
Sets of classes instead of one
==============================

A shop sorts photographs of clothes. Where the network is unsure, it should name every class that
the item may be, so that a clerk chooses among two or three and not among eight.
"""

import matplotlib.pyplot as plt
import numpy as np

from dubito import ConformalClassifier, Logits
from dubito.data import load_fashion_mnist

# %%
# Outputs of a network for images that it was not trained on: one part to calibrate on, another that
# stands for new images.

sample = load_fashion_mnist()
names = np.array(sample.classes)
known, labels = Logits(sample.validation_logits, sample.classes), names[sample.validation_labels]
new, truth = Logits(sample.test_logits, sample.classes), names[sample.test_labels]

# %%
# Adding up probabilities is not enough
# -------------------------------------
# The obvious set holds the most probable classes until their probabilities reach 95 %. It is only
# as good as these probabilities. Conformal prediction finds the threshold on known images instead,
# and contains the right class in 95 % of cases whatever the model:

p = np.exp(new.array - new.array.max(axis=1, keepdims=True))
p /= p.sum(axis=1, keepdims=True)
order = np.argsort(-p, axis=1)
before = np.cumsum(np.take_along_axis(p, order, axis=1), axis=1)
n_taken = 1 + (before < 0.95).sum(axis=1)
rank = (order == sample.test_labels[:, None]).argmax(axis=1)
print(f"sums of probabilities: coverage {(rank < n_taken).mean():.3f}, size {n_taken.mean():.2f}")
for method in ("lac", "aps", "raps"):
    sets = ConformalClassifier(level=0.95, method=method).fit(known, labels).predict(new)
    print(f"{method:>21}: coverage {sets.coverage(truth):.3f}, size {sets.sizes.mean():.2f}")

# %%
# Which images are covered?
# -------------------------
# 95 % is an average. ``diagnose`` compares sets of each size and images of each class with it, and
# says how far off they would be by chance:

smallest = ConformalClassifier(level=0.95).fit(known, labels).predict(new)
print(smallest.diagnose(truth))

# %%
# The smallest sets miss some classes more often than others. With a threshold per class, the
# guarantee holds for each of them: what remains by class is no more than chance explains. It costs
# larger sets:

by_class = ConformalClassifier(level=0.95, conditional="class").fit(known, labels).predict(new)
print(by_class.diagnose(truth))

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for place, (title, sets) in enumerate((("one threshold", smallest), ("one per class", by_class))):
    of_truth = sets.contains[np.arange(truth.size), sample.test_labels]
    covered = [of_truth[truth == one].mean() for one in names]
    axes[0].barh(np.arange(names.size) + 0.4 * place, covered, 0.4, label=title)
    counts = np.bincount(sets.sizes, minlength=names.size + 1) / truth.size
    axes[1].bar(np.arange(counts.size) + 0.4 * place - 0.2, counts, 0.4, label=title)
axes[0].axvline(0.95, color="0.3", linewidth=1)
axes[0].set(xlabel="Coverage", xlim=(0.85, 1))
axes[0].set_yticks(np.arange(names.size) + 0.2, names)
axes[1].set(xlabel="Classes in the set", ylabel="Fraction of images", xlim=(-0.6, 5.6))
legend = axes[1].legend(frameon=False)

# %%
# From a set to a decision
# ------------------------
# An image with one class in its set is sorted automatically, the others go to a clerk with the
# short list:

is_single = by_class.sizes == 1
correct = by_class.contains[is_single, sample.test_labels[is_single]].mean()
print(f"{is_single.mean():.1%} of images have one class, which is right for {correct:.1%}")
rows = np.flatnonzero(by_class.sizes > 1)[:4]
for row in rows:
    print(f"image {row}: {', '.join(map(str, by_class.names(row)))} (it is {truth[row]})")

# %%
# The guarantee is about all sets together, not about those with one class. Where an error has a
# cost, a policy weighs it against that of the clerk: :doc:`/guide/decide`.
# Methods, groups, covariate shift and many classes: :doc:`/sets`.
