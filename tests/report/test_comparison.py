"""Pages of comparisons and of drift."""

import re
from html import unescape

import numpy as np
import pytest

from dubito.monitor import Comparison, compare, detect_drift
from dubito.outputs import Logits, Normal, TopLabel
from dubito.report import comparison_report, drift_report
from dubito.report.comparison import _sentences

NAMES = ("cat", "<i>dog</i>", "fox")


def rows(n_rows: int, lean: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n_rows, 3)) + lean * np.array([1, 0, 0])
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    logits, labels = rows(400, 0.0, 0)
    models = {"<b>sure</b>": Logits(3 * logits), "calm": Logits(logits), "dull": Logits(logits / 4)}
    return compare(labels, models, n_resamples=100)


def words_of(html: str) -> str:
    """Return the text of a page as it is read."""
    body = html.split("<main")[1].split("</main>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_a_comparison_has_a_verdict_charts_and_tables(comparison: Comparison) -> None:
    page = comparison_report(comparison, command="dubito compare a b")
    assert page.verdict == comparison.verdict
    words = words_of(page.html)
    assert "Best by log loss: calm" in words
    assert "dubito compare a b" in words
    assert "<b>sure</b>" not in page.html
    # Two models less the first, and one less the best.
    assert page.html.count("<svg") == 3
    for one in comparison.differences:
        interval = one.interval
        assert f"{interval.value:.4f} ({interval.low:.4f} to {interval.high:.4f})" in words
    for figures in comparison.metrics.values():
        assert f"{figures['log_loss'].value:.4f}" in words


@pytest.mark.parametrize(
    ("scale", "headline", "mood"),
    [
        (1.0, "new is better than old, by log loss", "verdict good"),
        (9.0, "new is worse than old, by log loss", "verdict bad"),
        (3.0, "No significant difference in log loss", "verdict neutral"),
    ],
)
def test_comparison_verdict_names_the_better_model(scale: float, headline: str, mood: str) -> None:
    logits, labels = rows(400, 0.0, 0)
    models = {"old": Logits(3 * logits), "new": Logits(scale * logits)}
    page = comparison_report(compare(labels, models, n_resamples=100))
    assert headline in words_of(page.html)
    assert f'class="{mood}"' in page.html


def test_changes_relative_to_zero_are_not_drawn() -> None:
    labels = [0, 1] * 50
    right = [[0.9, 0.1], [0.1, 0.9]] * 50
    perfect = [[1.0, 0.0], [0.0, 1.0]] * 50
    page = comparison_report(compare(labels, {"perfect": perfect, "new": right}, n_resamples=50))
    assert "log loss: " not in words_of(page.html)
    assert "accuracy: 0" in words_of(page.html)


def test_regressions_are_compared_too() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=200)
    models = {
        "narrow": Normal(truth * 0, truth * 0 + 0.2),
        "fair": Normal(truth * 0, truth * 0 + 1),
    }
    page = comparison_report(compare(truth, models, n_resamples=50))
    assert "fair is better than narrow, by CRPS" in words_of(page.html)


def test_drift_has_a_verdict_charts_and_tables() -> None:
    (a, before), (b, after) = rows(400, 0.0, 0), rows(300, 1.5, 1)
    labels = [NAMES[k] for k in before], [NAMES[k] for k in after]
    found = detect_drift(
        Logits(a, NAMES), Logits(b, NAMES), y_reference=labels[0], y_current=labels[1],
        n_resamples=50,
    )  # fmt: skip
    page = drift_report(found, title="May and June")
    words = words_of(page.html)
    assert "May and June" in words
    assert f"Drift: {', '.join(found.shifted)}" in words
    assert 'class="verdict bad"' in page.html
    assert page.html.count("<svg") == 2
    assert "<i>dog" not in page.html
    assert found.prior is not None
    assert f"now {found.prior.prior[0] * 100:.1f} %" in words
    assert found.shifts["accuracy"].current is not None
    assert f"{found.shifts['accuracy'].current:.4f}" in words


def test_no_drift_is_good_news_also_for_top_labels() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 400)
    is_right = rng.random(400) < confidence
    halves = [TopLabel(confidence[rows], is_right[rows]) for rows in (slice(200), slice(200, 400))]
    page = drift_report(detect_drift(*halves, n_resamples=50))
    assert "No sign of drift" in words_of(page.html)
    assert 'class="verdict good"' in page.html
    assert page.html.count("<svg") == 1


def test_of_many_classes_those_with_the_largest_change_are_drawn() -> None:
    rng = np.random.default_rng(0)
    a, b = (Logits(2 * rng.normal(size=(300, 15))) for _ in range(2))
    page = drift_report(detect_drift(a, b, n_resamples=40))
    assert "The 12 classes with the largest change are shown." in words_of(page.html)


def test_sentences_end_with_a_word_or_a_bracket_not_inside_a_number() -> None:
    text = "It fell from 0.5 to 0.4 (by 0.1). It rose by 5 %. b is worse: retrain."
    assert _sentences(text) == (
        "It fell from 0.5 to 0.4 (by 0.1).",
        "It rose by 5 %.",
        "b is worse: retrain.",
    )


def test_charts_of_different_height_are_not_side_by_side() -> None:
    logits, labels = rows(300, 0.0, 0)
    other, _ = rows(300, 2.0, 1)
    page = drift_report(detect_drift(Logits(logits), Logits(other), y_reference=labels)).html
    assert page.count('<figure class="figure"') == 2
    assert 'class="row"' not in page.split("<main")[1]
