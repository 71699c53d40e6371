import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dubito.data import make_forecasts
from dubito.doubt import OnlineConformal, PredictionIntervals
from dubito.monitor import forecast_coverage
from dubito.outputs import Normal, Quantiles
from dubito.report import forecast_report
from tests.cli.conftest import Run, assert_same

OPTIONS = ["--time", "date", "--series", "hospital", "--horizon", "horizon"]
OPTIONS += ["--quantiles", "q_*", "--label", "admissions"]


@pytest.fixture
def frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    made = pd.DataFrame(make_forecasts(30))
    made.to_csv("all.csv", index=False)
    return made


def test_a_file_has_the_intervals_of_the_library(run: Run, frame: pd.DataFrame) -> None:
    done = run("forecast", "all.csv", *OPTIONS, "-o", "out.csv", "--report", "page.html", "--json")
    assert done.exit_code == 0, done.output
    quantiles = Quantiles(frame.filter(like="q_").to_numpy(), [0.05, 0.5, 0.95])
    found = OnlineConformal().replay(
        quantiles,
        frame["admissions"].astype(float).to_numpy(),
        time=frame["date"].to_numpy(dtype="datetime64[D]"),
        series=frame["hospital"].to_numpy(dtype=str),
        horizon=frame["horizon"].to_numpy(),
    )
    assert isinstance(found, PredictionIntervals)
    written = pd.read_csv("out.csv")
    assert written["low"].to_numpy() == pytest.approx(found.low)
    y = frame["admissions"].astype(float).to_numpy()
    inside = ((found.low <= y) & (y <= found.high))[~np.isnan(y)]
    printed = json.loads(done.stdout)
    assert printed["total"]["corrected"] == pytest.approx(inside.mean())
    assert printed["n_future"] == int(np.isnan(y).sum())
    assert Path("page.html").read_text().count("<svg") == 4
    ends = [(y <= bound)[~np.isnan(y)].mean() for bound in (found.low, found.high)]
    rows = printed["reliability"]
    assert [one["level"] for one in rows] == [0.05, 0.5, 0.95]
    assert [rows[0]["corrected"], rows[2]["corrected"]] == pytest.approx(ends)
    known = frame.dropna(subset="admissions")
    below = [(known["admissions"] <= known[q]).mean() for q in ("q_0.05", "q_0.5", "q_0.95")]
    assert [one["raw"] for one in rows] == pytest.approx(below)
    by_time = frame.assign(inside=(found.low <= y) & (y <= found.high)).loc[known.index]
    rolling = by_time.sort_values("date", kind="stable")["inside"].rolling(100).mean().dropna()
    assert printed["lowest_rolling"] == pytest.approx(rolling.min())
    shown = printed["rolling"]
    assert [shown[0]["corrected"], shown[-1]["corrected"]] == pytest.approx(
        [rolling.iloc[0], rolling.iloc[-1]]
    )
    assert len(shown) == min(len(rolling), 120)


def test_a_run_resumes_as_if_it_had_never_stopped(run: Run, frame: pd.DataFrame) -> None:
    whole = run("forecast", "all.csv", *OPTIONS, "--state", "a.json", "-o", "a.csv")
    assert whole.stdout.startswith("Intervals at 90.0 % covered")
    assert max(map(len, whole.stdout.splitlines())) <= 80
    dates = sorted(frame["date"].unique())
    early = frame[frame["date"] <= dates[17]].copy()
    known = pd.to_datetime(early["date"]) + pd.to_timedelta(7 * (early["horizon"] + 1), unit="D")
    early.loc[known > pd.Timestamp(dates[17]), "admissions"] = None
    early.to_csv("early.csv", index=False)
    run("forecast", "early.csv", *OPTIONS, "--state", "b.json", "-o", "b1.csv")
    run("forecast", "all.csv", *OPTIONS, "--state", "b.json", "-o", "b2.csv")
    parts = pd.concat([pd.read_csv("b1.csv"), pd.read_csv("b2.csv")], ignore_index=True)
    pd.testing.assert_frame_equal(parts, pd.read_csv("a.csv"), check_exact=True)
    assert Path("a.json").read_text() == Path("b.json").read_text()
    again = run("forecast", "all.csv", *OPTIONS, "--state", "b.json")
    assert "no forecasts after those" in again.stdout


def test_point_forecasts_and_mistakes(run: Run, frame: pd.DataFrame) -> None:
    base = ["forecast", "all.csv", "--time", "date", "--label", "admissions"]
    done = run(*base, "--series", "hospital", "--horizon", "horizon", "--forecast", "q_0.5")
    assert "truths came before the first interval" in done.stdout
    assert "--quantiles 'q_*'" in run(*base).stderr
    wrong = run("forecast", "all.csv", *OPTIONS, "--time", "hospital")
    assert "dates such as 2024-11-23" in " ".join(wrong.stderr.split())
    run("forecast", "all.csv", *OPTIONS, "--state", "s.json")
    other = run("forecast", "all.csv", *OPTIONS, "--state", "s.json", "--level", "0.8")
    assert "--level 0.9" in " ".join(other.stderr.split())


def test_help_lists_the_options(run: Run) -> None:
    assert_same(run("forecast", "--help").stdout, "help_forecast")


def test_reliability_of_normal_forecasts_is_that_of_their_quantiles() -> None:
    rng = np.random.default_rng(0)
    y, std = rng.normal(size=400), np.full(400, 0.5)
    bounds = -1.0 * np.ones(400), np.ones(400)
    names = ["a"] * 400
    found = forecast_coverage(
        y,
        bounds,
        bounds,
        level=0.8,
        series=names,
        horizon=[0] * 400,
        month=names,
        outputs=Normal(np.zeros(400), std),
    )
    for one in found.reliability:
        assert one.raw == pytest.approx(np.mean(y <= norm.ppf(one.level, 0, 0.5)))
    ours = {one.level: one.corrected for one in found.reliability if one.corrected is not None}
    assert ours == {0.1: np.mean(y <= -1), 0.9: np.mean(y <= 1)}
    few = forecast_coverage(
        y[:50],
        None,
        (bounds[0][:50], bounds[1][:50]),
        level=0.8,
        series=names[:50],
        horizon=[0] * 50,
        month=names[:50],
    )
    assert (few.rolling, few.lowest_rolling) == ((), None)
    assert [one.raw for one in few.reliability] == [None, None]
    assert "Rolling" not in forecast_report(few).html
