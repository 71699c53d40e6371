"""The study of OOD images runs, and its images do not mix."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studies.common.ood_images import KINDS
from studies.common.training import Recipe
from studies.softmax_ood.evaluation import LAYERS, SCORES
from studies.softmax_ood.study import Setting, main, parts_of


def test_it_prints_tables_of_figures_that_can_be(
    tmp_path: Path, tiny_fashion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", "--folder", str(tiny_fashion), *folders])
    printed = capsys.readouterr().out
    n_lines = [1 + len(KINDS), len(SCORES) + 2, len(SCORES), 2 * len(KINDS), 1 + len(KINDS)]
    n_lines += [8, 3, 4]
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == sum(n_lines) + 2 * len(n_lines)
    assert "larger than that of known images in every seed: " in printed
    assert (tmp_path / "out" / "softmax_ood.png").stat().st_size > 10_000

    (path,) = (tmp_path / "softmax_ood-quick").glob("*.npz")
    with np.load(path) as found:
        shares = [found[name] for name in ("found", "aurocs", "confidence", "as_sure", "toy")]
        norms, layers = found["norms"], found["layers"]
        angles_alone = found["part_aurocs"][:, 0], found["aurocs"][:, 0]
        fools = found["fools_confidence"]
    assert all(((one >= 0) & (one <= 1)).all() for one in shares)
    assert layers[:, LAYERS.index("penultimate features"), 0] == pytest.approx(norms, rel=1e-5)
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
