"""The sample of payments is what its script makes."""

from pathlib import Path

import numpy as np
import pytest

from dubito.data import load_payments
from dubito.data.samples import __file__ as samples
from studies import sample_payments


@pytest.mark.slow
def test_the_script_makes_the_sample_that_ships(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "payments.npz"
    sample_payments.main(["--output", str(path)])
    assert "labeled  15,000 rows  fraud 0.0319" in capsys.readouterr().out
    shipped = Path(samples).with_name("payments.npz")
    assert shipped.stat().st_size < 300_000
    with np.load(path) as made, np.load(shipped) as kept:
        assert set(made.files) == set(kept.files)
        for name in set(made.files) - {"meta"}:
            if name.endswith("_p"):  # other builds of scikit-learn round otherwise
                assert np.abs(made[name] - kept[name]).mean() < 1e-3
            else:
                assert (made[name] == kept[name]).all()


def test_columns_of_the_sample() -> None:
    sample = load_payments()
    assert repr(sample) == "PaymentsSample(15000 labeled, 5000 new rows)"
    for part in (sample.labeled, sample.new):
        assert list(part) == ["id", "amount", "region", "p", "label"]
        assert set(part["label"]) == {"legit", "fraud"}
        assert set(part["region"]) == {"north", "south", "west"}
        assert ((part["p"] > 0) & (part["p"] < 1)).all()
        assert part["amount"].min() >= 1
    ids = np.concatenate([sample.labeled["id"], sample.new["id"]])
    assert np.unique(ids).size == ids.size == 20_000
    # Fraud is more frequent in one region, which the model does not see.
    rates = {
        one: (sample.labeled["label"] == "fraud")[sample.labeled["region"] == one].mean()
        for one in ("north", "south", "west")
    }
    assert rates["west"] > 1.5 * rates["north"]
    assert sample.meta["made_by"] == "studies/sample_payments.py"
