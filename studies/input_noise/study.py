"""Noise in the inputs shows in p(x), noise in the labels in the entropy of p(class | x).

    python -m studies.input_noise            # wine, digits and Fashion-MNIST, 10 seeds
    python -m studies.input_noise --quick    # seconds: few rows, one seed

Bishop, "Novelty detection and neural network validation", 1994: where p(x) is low, a classifier
should not be trusted, whatever it says. Hüllermeier and Waegeman, "Aleatoric and epistemic
uncertainty in machine learning", 2021: noise of labels is in p(class | x), and stays there. Normal
densities of each class (`ClassConditionalDensity`, one covariance each) are compared with a
logistic regression. Inputs get noise, images also blur, in five levels, at test time or already in
training. Labels of some classes are swapped in pairs in all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dubito import Probabilities
from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.doubt import ClassConditionalDensity, entropy
from dubito.learn import flip_labels
from dubito.measure import accuracy, expected_calibration_error, risk_coverage_curve, roc_auc
from studies.common.runs import RunResult
from studies.common.study import Options, Study
from studies.input_noise.data import PAIRS, Source, source_of
from studies.input_noise.picture import LEVELS, RATES, SCORES
from studies.input_noise.reporting import LEARNED_LEVEL, WAYS, summarize

COVERAGE = 0.8
NOISE_SEED = 1_000  # for test inputs; training inputs have another one
LABEL_SEED = 2_000


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One data set, and the maximum number of training and test rows."""

    seed: int
    name: str
    n_train: int
    n_test: int
    folder: Path


def settings(options: Options) -> list[Setting]:
    """Return one setting per seed and data set."""
    sizes = {"wine": (89, 89), "digits": (900, 897), "Fashion-MNIST": (6_000, 2_000)}
    if options.is_quick:
        sizes = {"wine": (89, 89), "digits": (300, 200), "Fashion-MNIST": (300, 150)}
    return [
        Setting(seed, name, *rows, options.folder)
        for seed in options.seeds
        for name, rows in sizes.items()
    ]


class Models(NamedTuple):
    """A classifier and class densities, trained on the same rows."""

    classifier: LogisticRegression
    densities: ClassConditionalDensity

    @classmethod
    def fit(cls, x: FloatArray, y: IntArray) -> Models:
        """Learn both."""
        return cls(
            LogisticRegression(max_iter=2_000).fit(x, y),
            ClassConditionalDensity("per_class").fit(x, y),
        )

    def said(self, x: FloatArray) -> tuple[Probabilities, Probabilities]:
        """Return p(class | x) of classifier and densities."""
        return Probabilities(self.classifier.predict_proba(x)), self.densities.posteriors(x)

    def uncertainties(self, x: FloatArray) -> FloatArray:
        """Return every score per row: both entropies, and -log p(x)."""
        by_classifier, by_densities = self.said(x)
        uncertainties = entropy(by_classifier), entropy(by_densities), self.densities.score(x)
        return np.stack(uncertainties)


def work(setting: Setting) -> RunResult:
    """Return the detection of noise in inputs and labels, and the benefit of dropping rows."""
    source = source_of(setting.name, setting.n_train, setting.n_test, setting.seed, setting.folder)
    with threadpool_limits(1):
        models = Models.fit(source.features(source.train), source.y_train)
        figures = [part(models, source) for part in (of_inputs, of_learned, of_labels)]
    return {name: value for part in figures for name, value in part.items()}


def of_inputs(models: Models, source: Source) -> RunResult:
    """Return the metrics for new noise, by kind and level."""
    clean, y = source.features(source.test), source.y_test
    aurocs, kept, errors, likelihoods = [], [], [], []
    for kind in source.kinds:
        noisy = [source.worse(source.test, kind, level, NOISE_SEED) for level in LEVELS]
        every = [source.features(one) for one in noisy]
        both = [np.concatenate([clean, one]) for one in every]
        aurocs.append(
            [
                detection_auroc(models.uncertainties(clean), models.uncertainties(one))
                for one in every
            ]
        )
        kept.append([retained_errors(models, one, np.concatenate([y, y])) for one in both])
        errors.append([error_rates(models, one, y) for one in (clean, *every)])
        likelihoods.append([own_likelihood(models, one, y) for one in (clean, *every)])
    return {
        "input_aurocs": aurocs,
        "input_kept": kept,
        "input_errors": errors,
        "likelihoods": likelihoods,
    }


def of_learned(surprised: Models, source: Source) -> RunResult:
    """Return the metrics for noise at one level, new or also in training.

    They are errors and calibration errors of classifier and densities, and AUROC of all scores.
    """
    clean, y = source.features(source.test), source.y_test
    found = []
    for kind in source.kinds:
        noisy = source.features(source.worse(source.test, kind, LEARNED_LEVEL, NOISE_SEED))
        learned = source.features(source.worse(source.train, kind, LEARNED_LEVEL, source.seed))
        prepared = Models.fit(learned, source.y_train)
        found.append(
            [
                [
                    *error_rates(models, noisy, y),
                    *(expected_calibration_error(y, one) for one in models.said(noisy)),
                    *detection_auroc(models.uncertainties(clean), models.uncertainties(noisy)),
                ]
                for models in (surprised, prepared)
            ]
        )
    return {"learned": found}


def of_labels(clean_models: Models, source: Source) -> RunResult:
    """Return the metrics for labels swapped at a rate, in training and test rows."""
    pairs = PAIRS[source.name]
    learned, x = source.features(source.train), source.features(source.test)
    is_swapped = np.isin(source.y_test, np.ravel(pairs))
    aurocs, kept, entropies, wrong = [], [], [], []
    for rate in RATES:
        models, y, is_wrong = clean_models, source.y_test, np.zeros(len(x), dtype=bool)
        if rate:
            y_learned = flip_labels(source.y_train, rate, pairs, random_state=source.seed).noisy
            y, is_wrong = flip_labels(
                source.y_test, rate, pairs, random_state=LABEL_SEED + source.seed
            )
            models = Models.fit(learned, y_learned)
        uncertainties = models.uncertainties(x)
        aurocs.append(detection_auroc(uncertainties[:, ~is_swapped], uncertainties[:, is_swapped]))
        kept.append(retained_errors(models, x, y))
        entropies.append([one[is_swapped].mean() for one in uncertainties[:2]])
        if rate:
            wrong.append(
                wrong_label_auroc(models, x[is_swapped], y[is_swapped], is_wrong[is_swapped])
            )
    return {
        "label_aurocs": aurocs,
        "label_kept": kept,
        "label_entropies": entropies,
        "wrong_aurocs": wrong,
    }


def detection_auroc(fewer: FloatArray, more: FloatArray) -> list[float]:
    """Return the AUROC of each score (scores x rows), the second rows being positive."""
    is_more = np.repeat([False, True], [fewer.shape[1], more.shape[1]])
    return [roc_auc(is_more, one) for one in np.concatenate([fewer, more], axis=1)]


def wrong_label_auroc(
    models: Models, x: FloatArray, y: IntArray, is_wrong: BoolArray
) -> list[float]:
    """Return how well -p(label | x) of both models and -p(x | label) detect wrong labels."""
    rows = np.arange(len(y))
    given = [one.array[rows, y] for one in models.said(x)]
    likelihood = models.densities.log_likelihoods(x)[rows, y]
    found = [roc_auc(is_wrong, -one) for one in (*given, likelihood)]
    assert len(found) == len(WAYS)
    return found


def error_rates(models: Models, x: FloatArray, y: IntArray) -> list[float]:
    """Return the error rates of classifier and densities."""
    return [1 - accuracy(y, one) for one in models.said(x)]


def own_likelihood(models: Models, x: FloatArray, y: IntArray) -> float:
    """Return the median log p(x | its class) per feature."""
    likelihood = models.densities.log_likelihoods(x)[np.arange(len(y)), y]
    return float(np.median(likelihood) / x.shape[1])


def retained_errors(models: Models, x: FloatArray, y: IntArray) -> list[float]:
    """Return the classifier's error rate, on all rows and on those retained by each score."""
    said, _ = models.said(x)
    uncertainties = models.uncertainties(x)
    assert len(uncertainties) == len(SCORES)
    return [1 - accuracy(y, said), *(retained_error(y, said, one) for one in uncertainties)]


def retained_error(y: IntArray, said: Probabilities, score: FloatArray) -> float:
    """Return the error rate of the 80 % with the lowest scores, including ties."""
    curve = risk_coverage_curve(y, said, uncertainty=score)
    return float(curve.risk[np.argmax(curve.coverage >= COVERAGE - 1e-9)])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("input_noise", settings, work, summarize, n_seeds=10).main(arguments)
