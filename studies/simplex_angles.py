"""Are the weights of a last layer a simplex? The assumption of the mental model, measured.

    python -m studies.simplex_angles            # prints the table
    python -m studies.simplex_angles -o FILE    # also writes it to FILE

The mental model of softmax confidence (Pearce, Brintrup and Zhu, "Understanding softmax confidence
and uncertainty", 2021) assumes that the weights of K classes form a regular simplex of unit length,
so that features have a cosine of -1/(K-1) to the weights of all classes but their own. Measured on
the last layer of the sample that ships with dubito (Fashion-MNIST) and on that of a network that
learned eight digits, for known images and for each kind of OOD image of `studies.ood`.
"""

import argparse
from pathlib import Path

import numpy as np

from dubito.arrays import FloatArray
from dubito.doubt import mental_model, softmax_decomposition
from studies.ood import Images, Setting, digits_setting, sample_setting


def other_cosines(cosines: FloatArray) -> FloatArray:
    """Return the cosines of each row to all classes but the nearest, rows x (classes - 1)."""
    return np.sort(cosines, axis=1)[:, :-1]


def weight_cosines(weight: FloatArray) -> FloatArray:
    """Return the cosines of all pairs of classes."""
    unit = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(unit), 1)])


def figures(setting: Setting, of: Images) -> FloatArray:
    """Return what the assumption is about, for some images.

    The mean cosine to the nearest class; the mean, the mean within a row of the standard deviation,
    and the 5 % and 95 % quantiles of those to the others; and by how much the mental model, as
    published and for a simplex, differs from the confidence, on average.
    """
    parts = softmax_decomposition(of.features, setting.weight, setting.bias)
    others = other_cosines(parts.cosines)
    confidence = 1 - parts.uncertainty
    errors = [
        np.abs(-mental_model(of.features, setting.weight, form) - confidence).mean()
        for form in ("published", "simplex")
    ]
    quantiles = np.quantile(others, [0.05, 0.95])
    return np.array(
        [parts.familiarity.mean(), others.mean(), others.std(axis=1).mean(), *quantiles, *errors]
    )


def table(setting: Setting) -> str:
    """Return the figures of a setting."""
    n_classes, pairs = len(setting.weight), weight_cosines(setting.weight)
    norms = np.linalg.norm(setting.weight, axis=1)
    heads = "  nearest    others  std dev      5 %    95 %   published  simplex"
    lines = [
        f"{setting.name}: {n_classes} classes, -1/(K-1) = {-1 / (n_classes - 1):.4f}",
        f"Between the weights of two classes, the cosine is {pairs.mean():.4f} on average, from "
        f"{pairs.min():.4f} to {pairs.max():.4f};",
        f"their norms are from {norms.min():.4f} to {norms.max():.4f}; the mental model assumes 1.",
        "",
        f"{'':<16}  cosine of features to the weights of classes   mental model, error",
        f"{'':<16}{heads}",
    ]
    for name, of in {"known": setting.known, **setting.ood}.items():
        near, other, spread, low, high, published, simplex = figures(setting, of)
        cells = f"{near:>9.4f} {other:>9.4f} {spread:>8.4f} {low:>8.4f} {high:>7.4f}"
        lines.append(f"{name:<16}{cells} {published:>11.4f} {simplex:>8.4f}")
    return "\n".join(lines)


def main() -> None:
    """Print the tables, and write them to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("-o", type=Path, help="write the tables to this file")
    path = parser.parse_args().o
    text = "\n\n\n".join(table(setting) for setting in (sample_setting(), digits_setting()))
    print(text)
    if path is not None:
        path.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
