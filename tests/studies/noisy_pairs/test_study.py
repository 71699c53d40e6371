"""The study of swapped labels prints its tables, with CIFAR-10 and without."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from studies.common.cifar import TEST_FILES, TRAIN_FILES
from studies.common.study import Options
from studies.noisy_pairs.losses import LOSSES
from studies.noisy_pairs.study import main, settings


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    """A folder like cifar-10-batches-py, of few images."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (*TRAIN_FILES, *TEST_FILES):
        rows = rng.integers(0, 256, (20, 3072), dtype=np.uint8)
        content = {b"data": rows, b"labels": [number % 10 for number in range(20)]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    return folder


def test_quick_prints_tables_of_both_data_sets(
    tiny_fashion: Path, cifar: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--folder", str(tiny_fashion), "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", "--cifar", str(cifar), *places])
    printed = capsys.readouterr().out
    for name in ("Fashion-MNIST", "CIFAR-10"):
        table = printed.split(f"| {name}: accuracy |")[1].split("\n\n")[0].splitlines()
        assert [line.split(" | ")[0] for line in table[2:]] == [
            *("| cross-entropy", "| square loss", "| GCE", "| ELR", "| joint, chosen floor"),
            *(
                "| joint, floor -4",
                "| joint, floor -7",
                "| joint, no floor",
                "| faithful",
                "| slip",
            ),
        ]
    assert (tmp_path / "out" / "noisy_pairs.png").stat().st_size > 10_000
    main(["--quick", *places])
    assert "CIFAR-10 was left out" in capsys.readouterr().out


def test_all_runs_are_asked_for(tiny_fashion: Path, cifar: Path) -> None:
    whole = Options((0, 1, 2, 3, 4), is_quick=False, folder=tiny_fashion, cifar=cifar)
    requested = settings(whole)
    assert len(set(requested)) == len(requested) == len(LOSSES) * (5 * 3 + 3 * 2) + 3 * 4


def test_a_wrong_path_raises_before_any_run(tiny_fashion: Path, tmp_path: Path) -> None:
    places = ["--folder", str(tiny_fashion), "--cache", str(tmp_path / "kept")]
    with pytest.raises(ValueError, match=r"Got .*nowhere: .*Try --cifar PATH\."):
        main(["--quick", "--cifar", str(tmp_path / "nowhere"), *places])
    assert not (tmp_path / "kept").exists()
