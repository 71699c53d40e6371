"""The study of strangers runs, and its norms, patterns and shares are those of plain NumPy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from studies.laboratory.training import Recipe
from studies.scaled_inputs import FACTORS, blobs, far_confidence
from studies.softmax_strangers import Setting, main, parts_of
from studies.softmax_strangers_judging import DOUBTS, LAYERS, Judge, Seen, layers_of, look, tells
from studies.softmax_strangers_telling import in_every_seed, norm_ratios
from studies.strange_images import KINDS


def small_network() -> nn.Sequential:
    """A network with two hidden layers, for images of 2 x 2."""
    torch.manual_seed(0)
    hidden = nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(6, 3)).eval()


def seen_of(n_rows: int, seed: int) -> Seen:
    """What a small network makes of images of noise."""
    pixels = torch.rand((n_rows, 1, 2, 2), generator=torch.Generator().manual_seed(seed))
    return look(small_network(), pixels)


def test_it_prints_tables_of_figures_that_can_be(
    tmp_path: Path, tiny_fashion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", "--folder", str(tiny_fashion), *folders])
    printed = capsys.readouterr().out
    n_lines = [1 + len(KINDS), len(DOUBTS) + 2, len(DOUBTS), 2 * len(KINDS), 1 + len(KINDS), 8, 4]
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == sum(n_lines) + 2 * len(n_lines)
    assert "larger than that of known images in every seed: " in printed
    assert (tmp_path / "out" / "softmax_strangers.png").stat().st_size > 10_000

    (path,) = (tmp_path / "softmax_strangers-quick").glob("*.npz")
    with np.load(path) as found:
        shares = [found[name] for name in ("found", "aurocs", "confidence", "as_sure", "toy")]
        norms, layers = found["norms"], found["layers"]
        angles_alone = found["part_aurocs"][:, 0], found["aurocs"][:, 0]
        fools = found["fools_confidence"]
    assert all(((one >= 0) & (one <= 1)).all() for one in shares)
    assert layers[:, LAYERS.index("last features"), 0] == pytest.approx(norms, rel=1e-5)
    assert angles_alone[0] == pytest.approx(angles_alone[1], abs=1e-3)  # the softmax as it is
    assert (fools >= 1 / 8).all()


def test_known_unseen_and_spare_images_do_not_mix(tiny_fashion: Path) -> None:
    setting = Setting(0, 300, 100, 120, 30, 1, Recipe(1), 1, Recipe(1), tiny_fashion)
    parts, unseen, spare = parts_of(setting)
    rows = [one.pixels for one in parts] + [unseen, spare]
    assert [len(one) for one in rows] == [300, 100, 120, 30, 30]
    assert len(torch.unique(torch.cat(rows).flatten(1), dim=0)) == 580
    assert max(one.labels.max() for one in parts) == 7
    brightest = unseen[:, 0].mean(2).argmax(1)  # the row of pixels that is bright is the class
    assert set(((brightest - 4) / 2).tolist()) == {8, 9}


def test_patterns_and_layers_are_those_of_the_weights() -> None:
    network = small_network()
    pixels = torch.rand(7, 1, 2, 2)
    first, second = (network[i] for i in (1, 3))
    rows = pixels.flatten(1).numpy()
    weights = [one.detach().numpy() for layer in (first, second) for one in layer.parameters()]
    hidden = np.maximum(rows @ weights[0].T + weights[1], 0)
    last = np.maximum(hidden @ weights[2].T + weights[3], 0)
    seen = look(network, pixels)
    assert seen.features == pytest.approx(last, abs=1e-6)
    assert seen.patterns.tolist() == (np.concatenate([hidden, last], axis=1) > 0).tolist()
    found = layers_of(network, {"known": pixels})
    expected = [np.median(np.linalg.norm(one, axis=1)) for one in (rows, hidden, last)]
    assert found[0, :, 0] == pytest.approx(expected, rel=1e-5)
    assert found[0, :, 1] == pytest.approx([(one > 0).mean() for one in (rows, hidden, last)])


def test_regions_hold_as_many_known_images_as_wished() -> None:
    labels = np.arange(400) % 3
    judge = Judge(seen_of(400, seed=1), labels)
    shares = judge.shares_found(seen_of(3_000, seed=2))
    assert len(shares) == len(DOUBTS)
    assert max(shares) < 0.12  # 200 known images: the share is uncertain by 0.015
    assert min(shares[:2]) > 0.01


def test_auroc_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    known, strange = rng.normal(size=50), rng.normal(1, 2, size=30)
    expected = roc_auc_score([0] * 50 + [1] * 30, [*known, *strange])
    assert tells(known, strange) == pytest.approx(expected)


@pytest.mark.usefixtures("one_thread")
def test_far_directions_are_certain_in_the_end() -> None:
    """Hein et al.: along almost every direction a ReLU network's confidence goes to 1."""
    found = far_confidence(2, 300, Recipe(8, learning_rate=1e-2, batch_rows=32), seed=0)
    assert found.shape == (1 + len(FACTORS),)
    assert found[-1] > 0.99
    assert found[1] < found[-1]


def test_blobs_differ_in_two_directions() -> None:
    found = blobs(6_000, 5, torch.Generator().manual_seed(0))
    means = [found.pixels[found.labels == label].mean(0) for label in range(3)]
    assert [round(float(one[:2].norm())) for one in means] == [3, 3, 3]
    assert max(float(one[2:].abs().max()) for one in means) < 0.1


def test_ratios_and_names_are_of_every_seed() -> None:
    layers = np.ones((2, 1 + len(KINDS), len(LAYERS), 2))
    layers[:, 0, :, 0] = 2.0
    layers[:, 1, -1, 0] = [3.0, 5.0]
    layers[:, 2, -1, 0] = [3.0, 1.0]
    ratios = norm_ratios(layers)[..., -1]
    assert ratios[:, :3].tolist() == [[1.5, 1.5, 0.5], [2.5, 0.5, 0.5]]
    assert in_every_seed(ratios > 1) == KINDS[0]
    assert in_every_seed(ratios > 9) == "none"
