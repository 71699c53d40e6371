"""The study of training choices: its runs, its tables, its words."""

from pathlib import Path

import numpy as np
import pytest

from studies.common.study import Options
from studies.training_choices import study
from studies.training_choices.image_networks import Choices, Size


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
    assert "| LeNet5 | 61,706 | " in by_start["| Old and new"]
    assert (tmp_path / "training_choices.png").stat().st_size > 10_000
    assert len(list((tmp_path / "image_networks-quick").iterdir())) == 20


def test_every_choice_is_run_once_a_seed() -> None:
    whole = study.settings(Options((0, 1), False, Path()))
    assert len(set(whole)) == len(whole) == 2 * 20
    assert sum(one.is_followed for one in whole) == 2


def test_words_count_the_seeds_in_which_a_step_goes_as_claimed() -> None:
    sweep = {"1": Choices(n_layers=1), "2": Choices(n_layers=2), "3": Choices(n_layers=3)}
    values = ([0.1, 0.2], [0.2, 0.1], [0.3, 0.3])
    seen = {one: {"ece": np.array(e)} for one, e in zip(sweep.values(), values, strict=True)}
    text = "ECE rises from 1 to 2 in 1 of 2 seeds, from 2 to 3 in 2 of 2 seeds."
    assert study.step_words(sweep, seen, "rises") == text
    assert "falls from 1 to 2 in 1 of 2 seeds" in study.step_words(sweep, seen, "falls")


def test_words_on_losses_count_the_seeds_that_err_more_and_have_less_ece() -> None:
    sweep = {"plain": Choices(), "square": Choices(loss="square")}
    figures = ([0.1, 0.3], [0.4, 0.3]), ([0.2, 0.3], [0.2, 0.1])
    seen = {
        one: {"error": np.array(errors), "ece": np.array(ece)}
        for one, (errors, ece) in zip(sweep.values(), figures, strict=True)
    }
    text = "Seeds with higher error, and with lower ECE, than plain: square 1 and 2 of 2."
    assert study.loss_words(sweep, seen) == text


def test_decay_words_name_the_best_by_validation_and_the_lowest_ece() -> None:
    sweep = {name: Choices(weight_decay=decay) for name, decay in (("none", 0.0), ("some", 0.1))}
    figures = ([0.1, 0.3], [0.4, 0.3]), ([0.2, 0.1], [0.2, 0.5])
    seen = {
        one: {"validation_error": np.array(errors), "ece": np.array(ece)}
        for one, (errors, ece) in zip(sweep.values(), figures, strict=True)
    }
    text = "the most accurate on validation images is none, some; ECE is lowest at some, none."
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
