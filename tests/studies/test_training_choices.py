"""The study of training choices: its networks, its figures by hand, its tables."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from dubito import Logits
from studies import training_choices as study
from studies.image_networks import (
    Choices,
    Figures,
    Size,
    Trained,
    by_choices,
    scatter_ratio,
    template_cosine,
    trained,
)
from studies.laboratory.study import Options


def test_it_prints_a_table_for_each_way_to_vary_the_network(
    tmp_path: Path, tiny_fashion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {"--folder": tiny_fashion, "--cache": tmp_path, "-o": tmp_path}
    study.main(["--quick", *(str(word) for pair in folders.items() for word in pair)])
    tables = (tmp_path / "training_choices.md").read_text().split("\n\n")
    assert capsys.readouterr().out.startswith(tables[0])
    starts = [table.partition(" |")[0] for table in tables if table.startswith("|")]
    assert starts[:-2] == [f"| {name}" for name in study.SWEEPS]
    by_start = dict(zip(starts, (one for one in tables if one.startswith("|")), strict=True))
    for name, sweep in study.SWEEPS.items():
        assert len(by_start[f"| {name}"].splitlines()) == 2 + len(sweep)
    assert (tmp_path / "training_choices.png").stat().st_size > 10_000
    assert len(list((tmp_path / "image_networks-quick").iterdir())) == 18


def test_every_choice_is_run_once_a_seed() -> None:
    whole = study.settings(Options((0, 1), False, Path()))
    assert len(set(whole)) == len(whole) == 2 * 18
    assert sum(one.is_followed for one in whole) == 2


def test_figures_are_those_by_hand() -> None:
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 3, 500), rng.normal(size=(500, 3))
    logits[np.arange(500), labels] += 1
    found = Figures.of(labels, Logits(logits))
    shares = softmax(logits, axis=1)
    confidence, is_right = shares.max(axis=1), shares.argmax(axis=1) == labels
    bins = np.ceil(15 * confidence)
    gaps = [abs((confidence - is_right)[bins == one].sum()) for one in range(1, 16)]
    loss = -log_softmax(logits, axis=1)[np.arange(500), labels].mean()
    expected = (loss, 1 - is_right.mean(), sum(gaps) / 500, confidence.mean() - is_right.mean())
    assert found == pytest.approx(expected, abs=1e-12)


def test_clusters_are_as_tight_as_they_were_made() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 50_000)
    features = np.where(labels, 1.0, -1.0)[:, np.newaxis] * [1.0, 0.0]
    noisy = features + 0.5 * rng.normal(size=features.shape)
    assert scatter_ratio(noisy, labels) == pytest.approx(2 * 0.25, rel=0.02)
    weights = np.array([[-2.0, 0.0], [2.0, 0.0]]) + 7
    assert template_cosine(features + 3, labels, weights) == pytest.approx(1)
    turned = np.array([[0.0, -1.0], [0.0, 1.0]])
    assert template_cosine(features, labels, turned) == pytest.approx(0)


def test_choices_make_the_network_and_the_loss_that_they_say() -> None:
    outputs, labels = torch.tensor([[2.0, *[0.0] * 9]]), torch.tensor([0])
    plain, smooth, square = (
        one.likelihood().loss(outputs, labels).item()
        for one in (Choices(), Choices(smoothing=0.1), Choices(loss="square"))
    )
    shares = softmax(outputs.numpy()[0])
    assert plain == pytest.approx(-np.log(shares[0]), rel=1e-5)
    assert smooth == pytest.approx(plain + 0.1 * 0.9 * 2, rel=1e-5)
    assert square == pytest.approx((1 - shares[0]) ** 2 + (shares[1:] ** 2).sum(), rel=1e-5)
    kinds = [type(one).__name__ for one in Choices(2, 4, "batch").network()]
    assert (kinds.count("Conv2d"), kinds.count("BatchNorm2d")) == (2, 2)


def test_a_followed_network_is_measured_after_each_epoch_and_at_the_end(
    tiny_fashion: Path,
) -> None:
    choices, size = Choices(n_layers=1, width=2), Size(64, 2, 1, 50, 60)
    setting = Trained(choices, size, seed=0, is_followed=True, folder=tiny_fashion)
    run = trained(setting)
    assert run["curves"].shape == (3, 2, 4)
    seen = by_choices({setting: {name: np.asarray(one) for name, one in run.items()}})
    figures = [seen[choices][name][0] for name in Figures._fields]
    assert figures == pytest.approx(run["curves"][-1, 1])
    decayed = trained(replace(setting, choices=replace(choices, weight_decay=1.0)))
    assert np.abs(decayed["test_logits"]).mean() < np.abs(run["test_logits"]).mean()


def test_words_count_the_seeds_in_which_a_step_goes_as_claimed() -> None:
    sweep = {"1": Choices(n_layers=1), "2": Choices(n_layers=2), "3": Choices(n_layers=3)}
    values = ([0.1, 0.2], [0.2, 0.1], [0.3, 0.3])
    seen = {one: {"ece": np.array(e)} for one, e in zip(sweep.values(), values, strict=True)}
    text = "ECE rises from 1 to 2 in 1 of 2 seeds, from 2 to 3 in 2 of 2 seeds."
    assert study.step_words(sweep, seen, "rises") == text
    assert "falls from 1 to 2 in 1 of 2 seeds" in study.step_words(sweep, seen, "falls")


def test_words_on_decay_tell_the_best_by_validation_and_the_least_ece() -> None:
    sweep = {name: Choices(weight_decay=decay) for name, decay in (("none", 0.0), ("some", 0.1))}
    figures = ([0.1, 0.3], [0.4, 0.3]), ([0.2, 0.1], [0.2, 0.5])
    seen = {
        one: {"validation_error": np.array(errors), "ece": np.array(ece)}
        for one, (errors, ece) in zip(sweep.values(), figures, strict=True)
    }
    text = "the most accurate on validation images is none, some; ECE is least at some, none."
    assert study.decay_words(sweep, seen) == f"Seed by seed, {text}"


def test_the_epoch_is_chosen_on_validation_and_judged_on_test() -> None:
    curves = np.zeros((1, 3, 2, 4))
    curves[0, :, 0, 0] = [0.5, 0.4, 0.6]
    curves[0, :, 1, 0] = [0.7, 0.8, 0.9]
    curves[0, :, 1, 1] = [0.1, 0.3, 0.2]
    text = study.curve_text(curves, Size(100, 3))
    assert "(epoch 2) | 0.800 | 0.300 | 0.000 |" in text
    assert "| difference | 0.100 | -0.100 | 0.000 |" in text
    assert text.endswith("rises in 1 of 1 seeds, while the error ends lower in 1.")
