"""Claims about priors, densities, combined models and over-confidence, on simulated and small data.

    python -m studies.textbook_claims            # a few minutes, 20 seeds
    python -m studies.textbook_claims --quick    # seconds

Bishop, "Pattern recognition and machine learning", 2006, section 1.5.4: train on balanced classes
and compensate for the prior; generative models need more data; combine separate models instead of
joining their inputs. Beside the second stands its opposite (Ng and Jordan, "On discriminative vs.
generative classifiers", 2001): densities with a covariance per class, with one for both, and naive
Bayes are compared with logistic regression. The last: over-confidence does not need overfitting
(Guo et al., "On calibration of modern neural networks", 2017; Domingos and Pazzani, "On the
optimality of the simple Bayesian classifier under zero-one loss", 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito import Probabilities
from dubito.arrays import FloatArray, IntArray
from dubito.decide import adjust_prior, combine_posteriors
from dubito.doubt import ClassConditionalDensity
from dubito.measure import log_loss, roc_auc
from studies.common.reporting import StudyReport, markdown_table, panels
from studies.common.runs import Arrays, RunResult
from studies.common.seeds import mean_and_interval, mean_interval
from studies.common.study import Options, Study
from studies.three_roads.approaches import correlated, logistic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_PENALTY = 1e4
BETTER = {"log loss": ", lower is better", "AUROC": ", higher is better"}
RARE = 0.01


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One seed of one part."""

    part: str
    seed: int
    scale: int = 1  # divides the numbers of rows if quick


def settings(options: Options) -> list[Setting]:
    """Return one setting per part and seed."""
    scale = 10 if options.is_quick else 1
    return [Setting(part, seed, scale) for part in PARTS for seed in options.seeds]


def work(setting: Setting) -> RunResult:
    """Return the figures of one part by name."""
    found = PARTS[setting.part](setting)
    return {"names": np.array(list(found)), "values": np.array(list(found.values()))}


def balanced(setting: Setting) -> dict[str, float]:
    """Return what balanced training gains where 1 row in 100 is positive.

    All training sets have the same number of rows; "thinned" has only the positives of the natural
    one and as many negatives.
    """
    n_pool, n = 60_000 // setting.scale, 600
    x, y = make_classification(
        n_pool,
        8,
        n_informative=5,
        n_redundant=0,
        n_clusters_per_class=2,
        weights=[1 - RARE],
        flip_y=0.002,
        random_state=setting.seed,
    )
    pool, test = np.arange(n_pool // 2), np.arange(n_pool // 2, n_pool)
    rng = np.random.default_rng(setting.seed)
    rare, common = (rng.permutation(pool[y[pool] == label]) for label in (1, 0))
    half = min(len(rare), n // 2)
    few = max(2, round(n * y[pool].mean()))
    sets = {
        "natural": np.concatenate([rare[:few], common[: n - few]]),
        "balanced": np.concatenate([rare[:half], common[:half]]),
        "thinned": np.concatenate([rare[:few], common[:few]]),
    }
    prior = [1 - y[pool].mean(), y[pool].mean()]
    found: dict[str, float] = {}
    for model, make in MODELS.items():
        losses, ranks = {}, {}
        for name, rows in sets.items():
            said = Probabilities(make().fit(x[rows], y[rows]).predict_proba(x[test]))
            if name != "natural":
                losses[f"{name}, uncompensated"] = log_loss(y[test], floored(said))
                said = adjust_prior(floored(said), [0.5, 0.5], prior)
            losses[name] = log_loss(y[test], floored(said))
            ranks[name] = roc_auc(y[test] == 1, np.asarray(said.array)[:, 1])
        pairs = {
            "balanced and compensated minus natural": ("balanced", "natural"),
            "thinned and compensated minus natural": ("thinned", "natural"),
            "balanced, compensated minus not": ("balanced", "balanced, uncompensated"),
        }
        for pair, (first, second) in pairs.items():
            found[f"{model}: {pair}|log loss"] = losses[first] - losses[second]
            if second in ranks:
                found[f"{model}: {pair}|AUROC"] = ranks[first] - ranks[second]
    return found


def floored(outputs: Any) -> Probabilities:
    """Return probabilities of at least 1e-6, so that no single row decides the log loss."""
    array = np.clip(np.asarray(outputs.array, dtype=np.float64), 1e-6, None)
    return Probabilities(array / array.sum(axis=1, keepdims=True))


def densities(setting: Setting) -> dict[str, float]:
    """Return errors of generative minus discriminative models with few and many rows."""
    found: dict[str, float] = {}
    n_new = 4_000 // setting.scale
    x, y = normal_classes(setting.seed, 20_000 // setting.scale + n_new)
    new_x, new_y = x[-n_new:], y[-n_new:]
    sizes = (100, 20_000) if setting.scale == 1 else (100, 2_000)
    for n, words in zip(sizes, ("few", "many"), strict=True):
        rows = x[:n], y[:n]
        rival = logistic(*rows).predict(new_x)
        classes = {
            "covariance per class": QuadraticDiscriminantAnalysis().fit(*rows).predict(new_x),
            "shared covariance": LinearDiscriminantAnalysis().fit(*rows).predict(new_x),
        }
        for kind, name in (("per_class", "covariance per class"), ("shared", "shared covariance")):
            shrunk = ClassConditionalDensity(kind).fit(*rows).posteriors(new_x).array  # type: ignore[arg-type]
            classes[f"{name}, shrunk"] = shrunk.argmax(axis=1)
        for name, one in classes.items():
            gap = float((one != new_y).mean() - (rival != new_y).mean())
            found[f"{name}, minus logistic regression|{words} rows"] = gap
    drawn = correlated(setting.seed, sizes[1], n_new)
    for n, words in ((20, "few"), (sizes[1], "many")):
        both = np.concatenate([np.flatnonzero(drawn.y == k)[: n // 2] for k in (0, 1)])
        naive = GaussianNB().fit(drawn.x[both], drawn.y[both]).predict(drawn.new_x)
        rival = logistic(drawn.x[both], drawn.y[both], NO_PENALTY).predict(drawn.new_x)
        gap = float((naive != drawn.new_y).mean() - (rival != drawn.new_y).mean())
        found[f"naive Bayes minus logistic regression without penalty|{words} rows"] = gap
    return found


def normal_classes(seed: int, n: int, n_features: int = 30) -> tuple[FloatArray, IntArray]:
    """Return two normal classes of one covariance: densities and logistic regression are right."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    mix = np.eye(n_features) + 0.15 * rng.normal(size=(n_features, n_features))
    x = rng.normal(size=(n, n_features)) @ mix + np.where(y == 1, 0.25, -0.25)[:, np.newaxis]
    return x, y


def combined(setting: Setting) -> dict[str, float]:
    """Return the log loss of two models combined, minus that of one model on all inputs."""
    found: dict[str, float] = {}
    cancer = load_breast_cancer(return_X_y=True)
    n_new = 4_000 // setting.scale
    sources: dict[str, tuple[FloatArray, IntArray]] = {
        "independent parts": two_parts(setting.seed, n_new + 2_000, 0.0),
        "dependent parts": two_parts(setting.seed, n_new + 2_000, 0.7),
        "breast cancer": cancer,
    }
    for name, (x, y) in sources.items():
        sizes = {"few": 40, "many": 300 if name == "breast cancer" else 2_000}
        for words, n in sizes.items():
            known_x, new_x, known_y, new_y = train_test_split(
                x, y, train_size=n, stratify=y, random_state=setting.seed
            )
            halves = np.array_split(np.arange(x.shape[1]), 2)
            prior = [1 - known_y.mean(), known_y.mean()]
            parts = [
                floored(
                    Probabilities(logistic(known_x[:, one], known_y).predict_proba(new_x[:, one]))
                )
                for one in halves
            ]
            together = combine_posteriors([one.array for one in parts], prior)
            joined = Probabilities(logistic(known_x, known_y).predict_proba(new_x))
            gap = log_loss(new_y, floored(together)) - log_loss(new_y, floored(joined))
            found[f"{name}|{words} rows"] = gap
    return found


def two_parts(seed: int, n: int, shared: float) -> tuple[FloatArray, IntArray]:
    """Return normal features in two parts, whose noise has a shared component or none."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    common, own = rng.normal(size=(n, 1)), rng.normal(size=(n, 10))
    x = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
    return x + np.where(y == 1, 0.3, -0.3)[:, np.newaxis], y


def overconfident(setting: Setting) -> dict[str, float]:
    """Return overfitting, test minus training error, and over-confidence of naive Bayes."""
    found: dict[str, float] = {}
    n = 20_000 // setting.scale
    x, y = two_parts(setting.seed, 2 * n, 0.7)
    sources = {
        "correlated features": (x, y),
        "breast cancer": load_breast_cancer(return_X_y=True),
        "digits": load_digits(return_X_y=True),
    }
    for name, (x, y) in sources.items():
        known_x, new_x, known_y, new_y = train_test_split(
            x, y, train_size=0.5, stratify=y, random_state=setting.seed
        )
        model = GaussianNB(var_smoothing=1e-2 if name == "digits" else 1e-9).fit(known_x, known_y)
        errors = [
            float((model.predict(one) != labels).mean())
            for one, labels in ((known_x, known_y), (new_x, new_y))
        ]
        confidence = float(model.predict_proba(new_x).max(axis=1).mean())
        found[f"{name}|test minus training error"] = errors[1] - errors[0]
        found[f"{name}|confidence minus accuracy"] = confidence - (1 - errors[1])
    return found


MODELS: dict[str, Callable[[], Any]] = {
    "logistic regression": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=5_000)
    ),
    # By default a leaf has 20 rows: the 12 or so of "thinned" would never be split.
    "boosted trees": lambda: HistGradientBoostingClassifier(
        max_iter=60, min_samples_leaf=2, random_state=0
    ),
}
PARTS: dict[str, Callable[[Setting], dict[str, float]]] = {
    "Balanced training with 1 positive in 100": balanced,
    "Error of generative minus discriminative models": densities,
    "Log loss of two models combined minus one model on joined inputs": combined,
    "Naive Bayes: overfitting and over-confidence": overconfident,
}


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return a table of paired differences per part, and the figure."""
    by_part: dict[str, dict[str, list[float]]] = {}
    for setting, arrays in found.items():
        figures = by_part.setdefault(setting.part, {})
        for name, value in zip(arrays["names"].tolist(), arrays["values"].tolist(), strict=True):
            figures.setdefault(name, []).append(value)
    texts = ["Means over seeds of paired differences, with 95 % intervals."]
    for part, figures in by_part.items():
        columns = list(dict.fromkeys(name.split("|")[1] for name in figures))
        lines = list(dict.fromkeys(name.split("|")[0] for name in figures))
        cells = {name: mean_and_interval(values) for name, values in figures.items()}
        rows = [
            [line, *(cells.get(f"{line}|{column}", "") for column in columns)] for line in lines
        ]
        texts.append(f"**{part}**\n\n{markdown_table(['', *columns], rows)}")
    return StudyReport("\n\n".join(texts), picture(by_part))


def picture(by_part: Mapping[str, Mapping[str, list[float]]]) -> Figure:
    """Plot every difference with its interval: a row of panels per part, one per figure."""
    figure = panels(len(by_part), 2, size=(5.6, 2.0))
    for number, (part, figures) in enumerate(by_part.items()):
        pair = figure.axes[2 * number : 2 * number + 2]
        columns = list(dict.fromkeys(name.split("|")[1] for name in figures))
        lines = list(dict.fromkeys(name.split("|")[0] for name in figures))
        for axes, column in zip(pair, columns, strict=True):
            for row, line in enumerate(lines):
                values = figures.get(f"{line}|{column}")
                if values is not None:
                    one = mean_interval(values)
                    if len(values) > 1:
                        axes.plot([one.low, one.high], [row, row], color="0.4")
                    axes.plot(one.value, row, "o", color="#1f78b4", ms=4)
            axes.axvline(0, color="0.6", lw=0.8)
            axes.set_xscale("symlog", linthresh=0.01)
            axes.set_xlabel(f"{column}{BETTER.get(column, '')}", fontsize=8)
            axes.set_yticks(range(len(lines)), lines if axes is pair[0] else [])
            axes.set_ylim(len(lines) - 0.5, -0.5)
        pair[0].set_title(part, fontsize=9, loc="left")
    return figure


main = Study("textbook_claims", settings, work, summarize, n_seeds=20).main

if __name__ == "__main__":
    main()
