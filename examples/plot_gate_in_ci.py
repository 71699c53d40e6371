"""
A gate in CI
============

A model is retrained every night. Nobody looks at the metrics until something goes wrong. A gate in
the pipeline stops a model that is over-confident, worse for one group, or drifting: one command,
an exit code, and a finding that says why.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dubito.data import load_payments

# %%
# Last night's predictions on labeled payments, as the pipeline writes them. Then the same, after
# someone forgot to undo the oversampling of fraud: every probability is too high.

payments = load_payments().labeled
folder = Path(tempfile.mkdtemp())
columns = {name: payments[name] for name in ("p", "label", "region")}
odds = columns["p"] / (1 - columns["p"])
tonight = {"good.csv": 3 * odds / (1 + 3 * odds), "oversampled.csv": 30 * odds / (1 + 30 * odds)}
for file, p in tonight.items():
    rows = zip(p, columns["label"], columns["region"], strict=True)
    lines = ["p,label,region", *(f"{a:.6f},{b},{c}" for a, b, c in rows)]
    (folder / file).write_text("\n".join(lines) + "\n")

# %%
# The gate
# --------
# A limit is a metric, a comparison and a number; ``group.*`` is any group with enough rows,
# ``.low`` the lower end of an interval: what is sure to be crossed, not what noise may cross.

LIMITS = ["abs(gap)>0.01", "ece>0.02", "group.*.ece>0.03", "roc_auc<0.85"]


def gate(file: str) -> tuple[int, dict[str, object]]:
    """Return the exit code and the JSON of the audit of a file."""
    options = [word for limit in LIMITS for word in ("--fail-on", limit)]
    command = ["audit", file, "--positive", "fraud", "--group", "region", "--json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "dubito", *command], cwd=folder, capture_output=True, text=True
    )
    return done.returncode, json.loads(done.stdout)


results = {file: gate(file) for file in tonight}
for file, (code, found) in results.items():
    print(f"{file}: exit code {code}")
    for finding in found["findings"]:  # type: ignore[attr-defined]
        print("   ", finding)

# %%
# In a pipeline this is one step, with the report kept as an artifact::
#
#     dubito audit tonight.csv --positive fraud --group region -o report.html \
#         --fail-on 'abs(gap)>0.01' --fail-on 'group.*.ece>0.03'
#     dubito compare yesterday.csv tonight.csv --fail-on 'worse.*>0'
#     dubito drift reference.csv tonight.csv --fail-on-drift

fig, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
is_fraud = columns["label"] == "fraud"
for file, p in tonight.items():
    bins = np.array_split(np.argsort(p), 12)
    stated, observed = [p[b].mean() for b in bins], [is_fraud[b].mean() for b in bins]
    code = results[file][0]
    ax.plot(stated, observed, "o-", label=f"{file}: {'stopped' if code else 'passes'}")
ax.plot([1e-4, 1], [1e-4, 1], color="0.7", lw=0.8)
ax.set(xscale="log", yscale="log", xlabel="Mean P(fraud)", ylabel="Observed frequency")
legend = ax.legend()
