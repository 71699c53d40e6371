"""
A network trained to doubt
==========================

Annotators mix up three pairs of digits. With one output more, and a likelihood that knows what to
do with it, the network learns which images have labels that cannot be trusted. Several passes
with dropout then tell noisy labels from images of a kind that it has never seen.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from dubito.doubt import decompose_uncertainty
from dubito.learn import (
    Categorical,
    MonteCarloDropout,
    UncertaintyAware,
    collect_outputs,
    flip_labels,
)
from dubito.measure import accuracy, expected_calibration_error, log_loss, roc_auc

# %%
# Digits, of which 0 and 6, 1 and 7, 3 and 5 were swapped at random in training:

torch.manual_seed(0)
torch.set_num_threads(1)
pixels, digits = load_digits(return_X_y=True)
images, labels = torch.from_numpy(pixels / 16).float(), torch.from_numpy(digits)
pairs = [(0, 6), (1, 7), (3, 5)]
is_mixed = np.isin(digits, np.ravel(pairs))
noisy = flip_labels(labels, rate=0.4, pairs=pairs).noisy
train, test = slice(0, 1200), slice(1200, None)

# %%
# Your own training loop
# ----------------------
# A likelihood says how many outputs the network needs and what to minimize. ``Categorical`` is
# plain cross-entropy; ``UncertaintyAware`` adds a log variance per image.


def trained(likelihood: Categorical | UncertaintyAware, n_epochs: int = 30) -> nn.Module:
    """Return a network after some epochs on the noisy labels."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2)), nn.Linear(64, likelihood.n_outputs)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(n_epochs):
        for rows in torch.randperm(1200).split(100):
            optimizer.zero_grad()
            loss = likelihood.loss(network(images[train][rows]), noisy[train][rows])
            loss.backward()
            optimizer.step()
    return network.eval()


likelihoods = {"cross-entropy": Categorical(10), "uncertainty-aware": UncertaintyAware(10)}
batches = [(images[test], noisy[test])]
networks = {name: trained(one) for name, one in likelihoods.items()}
for name, network in networks.items():
    logits = collect_outputs(network, batches, likelihood=likelihoods[name]).logits
    y = noisy[test].numpy()
    error = expected_calibration_error(y, logits)
    print(f"{name:<18} accuracy {accuracy(y, logits):.3f}, "
          f"log loss {log_loss(y, logits):.3f}, ECE {error:.3f}")  # fmt: skip

# %%
# The learned variance
# --------------------
# On these few images the variance has a price, a slightly lower accuracy. In return it knows
# which digits were mixed up, which the network does not know:

aware = likelihoods["uncertainty-aware"]
with torch.no_grad():
    variance = aware.log_variance(networks["uncertainty-aware"](images[test])).exp().numpy()
which = is_mixed[test].astype(int)
print(f"AUROC of the learned variance for mixed-up digits: {roc_auc(which, variance):.3f}")

# %%
# Which uncertainty is it?
# ------------------------
# Several passes with dropout separate what the data leave open (aleatoric: mixed-up labels) from
# what the network has not learned (epistemic). It has never seen images with shuffled
# pixels.

likelihood = likelihoods["cross-entropy"]
passes = MonteCarloDropout(networks["cross-entropy"], 30, likelihood=likelihood, random_state=0)
kinds = {
    "clean digits": images[test][~is_mixed[test]],
    "mixed-up digits": images[test][is_mixed[test]],
    "pixels shuffled": images[test][:, torch.randperm(64)],
}
parts = {name: decompose_uncertainty(passes(rows)) for name, rows in kinds.items()}
fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for name, found in parts.items():
    ax.scatter(found.aleatoric, found.epistemic, s=8, alpha=0.5, label=name)
    print(
        f"{name:<16} aleatoric {found.aleatoric.mean():.3f}, epistemic {found.epistemic.mean():.3f}"
    )
ax.set(xlabel="Aleatoric uncertainty (nats)", ylabel="Epistemic uncertainty (nats)")
legend = ax.legend(markerscale=2)

# %%
# Mixed-up digits have a higher aleatoric uncertainty than clean ones, and the same epistemic one:
# more labels of this kind would not help, better annotators would. On shuffled images both are
# higher, and only there the passes disagree.

both = decompose_uncertainty(passes(images[test]))
print(f"AUROC of aleatoric uncertainty for mixed-up digits: {roc_auc(which, both.aleatoric):.3f}")

# %%
# The whole workflow with a policy and a report is in :doc:`/pytorch`; scripts on noisy labels
# (``noisy_digits.py``), few labels and many images without (``mean_teacher.py``) and uncertain
# labels (``uncertain_findings.py``) are in :doc:`/scripts`.
