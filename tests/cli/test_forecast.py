import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest, norm

from dubito.data import make_forecasts
from dubito.doubt import OnlineConformal, PredictionIntervals, PredictionSets
from dubito.monitor import forecast_coverage
from dubito.outputs import Normal, Probabilities, Quantiles
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
    is_corrected = found.low != frame["q_0.05"].to_numpy()
    inside = ((found.low <= y) & (y <= found.high))[~np.isnan(y) & is_corrected]
    printed = json.loads(done.stdout)
    assert printed["total"]["corrected"] == pytest.approx(inside.mean())
    assert printed["n_future"] == int(np.isnan(y).sum())
    page = Path("page.html").read_text()
    assert page.count("<svg") == 6  # with the series of the lowest coverage and the largest
    assert "(lowest coverage)" in page
    assert "7 days after the forecast" in page
    ends = [(y <= bound)[~np.isnan(y) & is_corrected].mean() for bound in (found.low, found.high)]
    rows = printed["reliability"]
    assert [one["level"] for one in rows] == [0.05, 0.5, 0.95]
    assert [rows[0]["corrected"], rows[2]["corrected"]] == pytest.approx(ends)
    known = frame[is_corrected].dropna(subset="admissions")
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
    assert printed["n_warm_up"] == int((~np.isnan(y) & ~is_corrected).sum()) > 0


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
    whole_run = pd.read_csv("a.csv").drop(columns="admissions")
    pd.testing.assert_frame_equal(parts.drop(columns="admissions"), whole_run, check_exact=True)
    assert [*whole_run] == [*frame.drop(columns="admissions"), "low", "high"]
    assert Path("a.json").read_text() == Path("b.json").read_text()
    again = run("forecast", "all.csv", *OPTIONS, "--state", "b.json")
    assert "no forecasts after those" in again.stdout


def test_point_forecasts_and_mistakes(run: Run, frame: pd.DataFrame) -> None:
    base = ["forecast", "all.csv", "--time", "date", "--label", "admissions"]
    done = run(*base, "--series", "hospital", "--horizon", "horizon", "--forecast", "q_0.5")
    assert "outcomes came before the first correction" in done.stdout
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
        (bounds[0] / 2, bounds[1] / 2),
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


def weekly(frame: pd.DataFrame, week: int) -> pd.DataFrame:
    """Return the file of a week: forecasts up to its date, and outcomes known by then."""
    dates = sorted(frame["date"].unique())
    found = frame[frame["date"] <= dates[week]].copy()
    known = pd.to_datetime(found["date"]) + pd.to_timedelta(7 * (found["horizon"] + 1), unit="D")
    found.loc[known > pd.Timestamp(dates[week]), "admissions"] = None
    return found


def test_truths_without_new_forecasts_are_kept_and_judged(run: Run, frame: pd.DataFrame) -> None:
    first, second = weekly(frame, 17), weekly(frame, 18)
    first.to_csv("first.csv", index=False)
    run("forecast", "first.csv", *OPTIONS, "--state", "s.json", "-o", "issued.csv")
    rows = second["date"].isin(first["date"])
    second[rows].to_csv("truths.csv", index=False)
    done = run("forecast", "truths.csv", *OPTIONS, "--state", "s.json")
    y = second.loc[rows, "admissions"].to_numpy(dtype=float)
    is_told = ~np.isnan(y) & first["admissions"].isna().to_numpy()
    issued = pd.read_csv("issued.csv")
    inside = ((issued["low"] <= y) & (y <= issued["high"]))[is_told]
    assert f"of {is_told.sum()} outcomes before correction, and {inside.mean():.1%}".replace(
        "%", " %"
    ) in " ".join(done.stdout.split())
    assert "truths.csv has no new forecasts" in done.stdout
    second[~rows].drop(columns="admissions").to_csv("new.csv", index=False)
    future = run("forecast", "new.csv", *OPTIONS, "--state", "s.json", "-o", "parts.csv")
    assert "No outcome to evaluate 90 % intervals on yet." in future.stdout
    second.to_csv("second.csv", index=False)
    run("forecast", "second.csv", *OPTIONS, "-o", "whole.csv")
    whole = pd.read_csv("whole.csv")[(~rows).to_numpy()].reset_index(drop=True)
    whole = whole.drop(columns="admissions")
    pd.testing.assert_frame_equal(pd.read_csv("parts.csv"), whole, check_exact=True)
    assert "In all runs, intervals covered" in done.stdout


def test_late_forecasts_are_issued_unless_their_truth_is_known(
    run: Run, frame: pd.DataFrame
) -> None:
    early = weekly(frame, 17)
    dates = sorted(early["date"].unique())
    city = early["hospital"] == "city"
    is_late = city & early["date"].isin([dates[5], *dates[15:]])  # a gap, and the last three
    early[~is_late].to_csv("first.csv", index=False)
    run("forecast", "first.csv", *OPTIONS, "--state", "s.json")
    early.to_csv("second.csv", index=False)
    done = run("forecast", "second.csv", *OPTIONS, "--state", "s.json", "-o", "out.csv")
    known = pd.to_datetime(early["date"]) + pd.to_timedelta(7 * (early["horizon"] + 1), unit="D")
    can_be_issued = is_late & (known > pd.Timestamp(dates[17]))
    text = " ".join(done.output.split())
    n_old = int((can_be_issued & (early["date"] < dates[17])).sum())
    assert n_old == 3
    assert f"{n_old} forecasts are older than the last one in s.json" in text
    assert f"e.g. that of series 'city', horizon 2, {dates[15]}" in text
    n_lost = int((is_late & ~can_be_issued).sum())
    assert f"{n_lost} forecasts are too late for intervals" in text
    assert f"e.g. that of series 'city', horizon 0, {dates[5]}" in text
    written = pd.read_csv("out.csv")
    issued = early[can_be_issued].reset_index(drop=True)
    assert written[["date", "horizon"]].equals(issued[["date", "horizon"]])
    again = run("forecast", "second.csv", *OPTIONS, "--state", "s.json").output
    assert f"{n_lost} forecasts are too late" in " ".join(again.split())
    assert "Nothing in second.csv could be issued" in again


def test_a_late_forecast_of_a_gap_is_issued_once(run: Run, frame: pd.DataFrame) -> None:
    early = weekly(frame, 17)
    is_late = (early["hospital"] == "city") & (early["horizon"] == 2)
    is_late &= early["date"] == sorted(early["date"].unique())[16]
    early[~is_late].to_csv("first.csv", index=False)
    run("forecast", "first.csv", *OPTIONS, "--state", "s.json")
    early.to_csv("second.csv", index=False)
    done = run("forecast", "second.csv", *OPTIONS, "--state", "s.json", "-o", "out.csv")
    assert len(pd.read_csv("out.csv")) == 1
    assert "1 forecast is older" in " ".join(done.stdout.split())
    later = weekly(frame, 22)  # by when its outcome has been learned from
    later.to_csv("later.csv", index=False)
    found = run("forecast", "later.csv", *OPTIONS, "--state", "s.json", "-o", "later_out.csv")
    assert "too late" not in found.output
    assert set(pd.read_csv("later_out.csv")["date"]) == set(later["date"]) - set(early["date"])


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("horizon", 1.5, "`horizon`, row 4: must hold whole numbers of at least 0, got '1.5'."),
        (
            "horizon",
            None,
            "row 4: must hold whole numbers of at least 0, got a blank cell",
        ),
        ("hospital", None, "`hospital`, row 4: must name the series of each row, got a blank cell"),
        ("date", None, "`date`, row 4: must hold a time in each row, got a blank cell"),
    ],
)
def test_bad_cells_are_named(
    run: Run, frame: pd.DataFrame, column: str, cell: object, message: str
) -> None:
    frame = frame.astype({"horizon": float})
    frame.to_csv("fine.csv", index=False)
    assert "covered" in run("forecast", "fine.csv", *OPTIONS).stdout  # 1.0 is 1
    frame.loc[4, column] = cell
    frame.to_csv("bad.csv", index=False)
    assert message in " ".join(run("forecast", "bad.csv", *OPTIONS).stderr.split())


def test_mistakes_of_options_are_explained(run: Run, frame: pd.DataFrame) -> None:
    def error(*options: str) -> str:
        return " ".join(run("forecast", "all.csv", *options).stderr.split())

    assert "Pass --level 0.9." in error(*OPTIONS, "--level", "90")
    some = [one for one in OPTIONS if "horizon" not in one]
    assert "horizon 0, " in error(*some)
    assert "np.str_" not in error(*some)
    assert "(rows 0 and 1). Pass --horizon, or remove one." in error(*some)
    assert "forecasts of one kind" in error(*OPTIONS, "--forecast", "q_0.5")
    assert "no column 'place' (--series)" in error(*OPTIONS, "--series", "place")
    frame.rename(columns={"admissions": "target"}).to_csv("target.csv", index=False)
    points = ["--time", "date", "--series", "hospital", "--horizon", "horizon"]
    done = run("forecast", "target.csv", *points, "--forecast", "q_0.5")
    assert "covered" in done.stdout


def test_times_with_a_zone_are_in_utc(run: Run, frame: pd.DataFrame) -> None:
    run("forecast", "all.csv", *OPTIONS, "-o", "a.csv")
    frame["date"] = frame["date"].astype(str) + "T01:00:00+01:00"
    frame.to_csv("zones.csv", index=False)
    done = run("forecast", "zones.csv", *OPTIONS, "-o", "b.csv")
    assert "timezones" not in done.stderr
    assert pd.read_csv("a.csv")["low"].tolist() == pd.read_csv("b.csv")["low"].tolist()


DAYS = ["--time", "date", "--series", "s", "--quantiles", "q_*"]


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Return forecasts of two series on 24 days."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    center = rng.normal(50, 3, 48)
    made = pd.DataFrame({"date": np.repeat(pd.date_range("2025-01-20", periods=24), 2).astype(str)})
    made["s"] = ["a", "b"] * 24
    made["q_0.05"], made["q_0.95"] = center - 3, center + 3
    made["y"] = center + rng.normal(0, 3, 48)
    made.to_csv("days.csv", index=False)
    return made


def bounds(file: str) -> list[Any]:
    return [*zip(*pd.read_csv(file)[["low", "high"]].to_numpy().T.tolist(), strict=True)]


def test_dates_in_other_formats_are_the_same_dates(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "iso.csv", "--state", "iso.json")
    for form, options in (
        ("%Y%m%d", []),
        ("%Y/%m/%d", []),
        ("%d.%m.%Y", ["--time-format", "%d.%m.%Y"]),
        ("%Y-%m-%dT00:00:00+01:00", []),
    ):
        other = days.assign(date=pd.to_datetime(days["date"]).dt.strftime(form))
        other.to_csv("other.csv", index=False)
        Path("s.json").unlink(missing_ok=True)
        done = run("forecast", "other.csv", *DAYS, *options, "-o", "o.csv", "--state", "s.json")
        assert bounds("o.csv") == bounds("iso.csv"), form
        assert "2025-02        24" in done.stdout
        assert ("eight digits" in done.stderr) == (form == "%Y%m%d")
        if "T" not in form:
            assert Path("s.json").read_text() == Path("iso.json").read_text()
    days.assign(date="01.02.2025").to_csv("other.csv", index=False)
    wrong = " ".join(run("forecast", "other.csv", *DAYS).stderr.split())
    assert "column `date`, row 0: must " in wrong
    assert "got '01.02.2025'. Pass --time-format '%d.%m.%Y'" in wrong
    days.loc[3, "date"] += "T00:00:00Z"
    days.to_csv("other.csv", index=False)
    assert "a time zone in all rows or in none" in run("forecast", "other.csv", *DAYS).stderr


def test_a_state_of_dates_rejects_numbers(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "--state", "s.json")
    before = Path("s.json").read_text()
    days.tail(2).assign(date=5).to_csv("numbers.csv", index=False)
    done = run("forecast", "numbers.csv", *DAYS, "--state", "s.json")
    assert done.exit_code == 2
    message = (
        "`date`, row 0: must hold dates, as in s.json, got numbers such as 5. Write dates such"
    )
    assert message in " ".join(done.stderr.split())
    assert Path("s.json").read_text() == before


def test_weeks_that_come_one_by_one_are_those_of_one_run(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "whole.csv", "--state", "whole.json")
    parts = []
    dates = sorted(days["date"].unique())
    for k in range(3):  # one date each, and in the end all others
        week = days[days["date"].isin(dates[k : k + 1] if k < 2 else dates[2:])]
        is_known = week["date"] < week["date"].max()
        sent = week.assign(y=week["y"].where(is_known)) if k == 2 else week.drop(columns="y")
        sent.to_csv("week.csv", index=False)
        done = run("forecast", "week.csv", *DAYS, "--state", "s.json", "-o", f"o{k}.csv")
        assert ("All forecasts are of one time" in done.stdout) == (k == 0)
        parts += bounds(f"o{k}.csv")
        week[~is_known][["date", "s", "y"]].to_csv("truths.csv", index=False)
        options = DAYS if k == 1 else DAYS[:4]
        truths = run("forecast", "truths.csv", *options, "--state", "s.json")
        assert "2 of the outcomes belong to forecasts of earlier runs" in truths.stdout
    assert parts == bounds("whole.csv")
    assert Path("s.json").read_text() == Path("whole.json").read_text()
    n_judged = 48 - int(pd.read_csv("whole.csv").eval("low == `q_0.05`").sum())
    assert f" of {n_judged} outcomes." in " ".join(truths.stdout.split("In all runs")[1].split())


def test_blank_forecasts_bring_truths_alone(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "whole.csv")
    last, before = sorted(days["date"].unique())[-2:][::-1]
    is_old = days["date"] == before
    early = days[days["date"] <= before].copy()
    early.loc[early["date"] == before, "y"] = None
    early.to_csv("early.csv", index=False)
    run("forecast", "early.csv", *DAYS, "--state", "s.json")
    both = days[days["date"] >= before].copy()
    both.loc[is_old, ["q_0.05", "q_0.95"]] = None
    both.to_csv("both.csv", index=False)
    done = run("forecast", "both.csv", *DAYS, "--state", "s.json", "-o", "o.csv")
    assert bounds("o.csv") == bounds("whole.csv")[-2:]
    assert "2 of the outcomes belong" in done.stdout
    days[days["date"] == last][["date", "s", "y"]].replace("b", "c").to_csv("c.csv", index=False)
    unknown = run("forecast", "c.csv", *DAYS, "--state", "s.json").stderr
    assert "1 outcome was of no forecast in s.json" in " ".join(unknown.split())


def test_other_forecasts_and_truths_of_a_known_row_are_named(run: Run, days: pd.DataFrame) -> None:
    last = days["date"] == days["date"].max()
    days.assign(y=days["y"].where(~last)).to_csv("early.csv", index=False)
    run("forecast", "early.csv", *DAYS, "--state", "s.json")
    days[last].assign(y=None, **{"q_0.95": 99.0}).to_csv("changed.csv", index=False)
    changed = " ".join(run("forecast", "changed.csv", *DAYS, "--state", "s.json").stderr.split())
    assert "2 forecasts differ from what s.json issued intervals for" in changed
    assert "e.g. that of series 'a', horizon 0, 2025-02-12" in changed
    for value, message in (
        (0, "2 of the outcomes belong"),
        (30, "2 outcomes were given before with"),
    ):
        days[last].assign(y=days["y"] + value).to_csv("t.csv", index=False)
        done = run("forecast", "t.csv", *DAYS, "--state", "s.json")
        assert message in " ".join(done.output.split())
    old = days[~last].assign(y=1.0)
    old.to_csv("old.csv", index=False)
    ignored = run("forecast", "old.csv", *DAYS, "--state", "s.json", "-o", "o.csv")
    assert "46 outcomes were learned from in earlier runs and ignored" in " ".join(
        ignored.stderr.split()
    )
    assert len(pd.read_csv("o.csv")) == 0  # and not what an earlier run left


def test_the_order_of_rows_does_not_matter(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "a.csv")
    days[::-1].to_csv("back.csv", index=False)
    run("forecast", "back.csv", *DAYS, "-o", "b.csv")
    assert bounds("b.csv") == bounds("a.csv")[::-1]


def test_ensembles_are_normal_distributions(run: Run, days: pd.DataFrame) -> None:
    days["m_1"], days["m_2"], days["s_1"], days["s_2"] = days["y"] - 1, days["y"] + 1, 1.0, 2.0
    days["m"], days["v"] = days["y"], np.sqrt(2.5 + 1)
    days.to_csv("days.csv", index=False)
    both = (("m_*", "s_*", "a.csv"), ("m", "v", "b.csv"))
    for mean, std, file in both:
        run("forecast", "days.csv", *DAYS[:4], "--mean", mean, "--std", std, "-o", file)
    assert np.array(bounds("a.csv")) == pytest.approx(np.array(bounds("b.csv")))


def test_invalid_forecasts_are_set_aside_and_crossing_ones_sorted(
    run: Run, days: pd.DataFrame
) -> None:
    days.drop(index=4).to_csv("fine.csv", index=False)
    run("forecast", "fine.csv", *DAYS, "-o", "fine_out.csv")
    days.loc[4, "q_0.05"] = None
    days.loc[[6, 7], ["q_0.05", "q_0.95"]] = days.loc[[6, 7], ["q_0.95", "q_0.05"]].to_numpy()
    days.to_csv("bad.csv", index=False)
    assert "--bad-rows bad.csv" in run("forecast", "bad.csv", *DAYS).stderr
    options = [*DAYS, "--rearrange", "--bad-rows", "aside.csv", "-o", "o.csv"]
    done = run("forecast", "bad.csv", *options)
    assert "2 rows with crossing quantiles sorted" in done.stdout
    assert "1 invalid row was set aside in aside.csv" in done.stdout
    assert pd.read_csv("aside.csv")["row"].tolist() == [4]
    assert bounds("o.csv") == bounds("fine_out.csv")
    printed = json.loads(run("forecast", "bad.csv", *options, "--json").stdout)
    assert (printed["n_rearranged"], printed["n_bad_rows"]) == (2, 1)


def test_horizons_may_count_from_1(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "a.csv")
    days.assign(h=1).to_csv("h.csv", index=False)
    noted = run("forecast", "h.csv", *DAYS, "--horizon", "h")
    assert "Pass --horizon-from 1" in " ".join(noted.stderr.split())
    done = run("forecast", "h.csv", *DAYS, "--horizon", "h", "--horizon-from", "1", "-o", "b.csv")
    assert bounds("a.csv") == bounds("b.csv")
    assert "The outcome of horizon 1 counts as known 1 day after" in " ".join(done.stdout.split())
    assert "horizon-from" not in done.stderr


def test_months_count_as_months(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "a.csv")
    for freq in ("MS", "ME"):
        days["date"] = np.repeat(pd.date_range("2025-01-01", periods=24, freq=freq), 2)
        days.to_csv("months.csv", index=False)
        done = run("forecast", "months.csv", *DAYS, "-o", "b.csv")
        assert "counts as known 1 month after" in " ".join(done.stdout.split())
        assert bounds("a.csv") == bounds("b.csv")  # each outcome is known at the next forecast


def test_daylight_saving_makes_no_steps(run: Run, days: pd.DataFrame) -> None:
    run("forecast", "days.csv", *DAYS, "-o", "a.csv")
    dates = pd.date_range("2025-03-20", periods=24, tz="Europe/Berlin")
    days["date"] = np.repeat([one.isoformat() for one in dates], 2)
    days.to_csv("local.csv", index=False)
    done = run("forecast", "local.csv", *DAYS, "-o", "b.csv")
    assert "counts as known 1 day after" in " ".join(done.stdout.split())
    assert bounds("a.csv") == bounds("b.csv")


def test_errors_name_dates_and_flags(run: Run, days: pd.DataFrame) -> None:
    days.assign(known="2025-01-21").to_csv("known.csv", index=False)
    early = " ".join(run("forecast", "known.csv", *DAYS, "--known", "known").stderr.split())
    assert "`known`, row 2: must be after `date` (2025-01-21), got 2025-01-21." in early
    assert "--known" in early
    level = run("forecast", "days.csv", *DAYS, "--level", "0.8").stderr
    assert "Pass --level 0.9." in level
    hours = pd.date_range("2025-01-01", periods=24, freq="h")
    days.assign(date=np.repeat(hours, 2)).to_csv("hours.csv", index=False)
    assert "known 1 hour after" in " ".join(run("forecast", "hours.csv", *DAYS).stdout.split())
    assert "--samples 's_*'" in run("forecast", "days.csv", "--time", "date").stderr


WEATHER = ["--time", "day", "--series", "site", "--probabilities", "p_*"]


@pytest.fixture
def weather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Return forecasts of three classes that are over-confident; the last day has no outcome."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(240, 3))
    p, stated = (np.exp(k * logits) / np.exp(k * logits).sum(axis=1)[:, None] for k in (1, 3))
    names = np.array(["fog", "rain", "sun"])
    labels = [rng.choice(names, p=one) for one in p]
    frame = pd.DataFrame({"day": np.arange(240) // 2, "site": np.arange(240) % 2})
    frame[[f"p_{one}" for one in names]] = stated
    frame["label"] = [*labels[:-2], None, None]
    frame.to_csv("weather.csv", index=False)
    return frame


def test_sets_of_classes_are_those_of_the_library(run: Run, weather: pd.DataFrame) -> None:
    done = run("forecast", "weather.csv", *WEATHER, "-o", "o.csv", "--report", "p.html", "--json")
    assert done.exit_code == 0, done.output
    p = weather.filter(like="p_").to_numpy()
    found = OnlineConformal().replay(
        Probabilities(p, classes=["fog", "rain", "sun"]),
        weather["label"].tolist(),
        time=weather["day"].to_numpy(),
        series=weather["site"].to_numpy().astype(str),
    )
    assert isinstance(found, PredictionSets)
    written = pd.read_csv("o.csv")
    assert written["prediction_set"].tolist() == [
        ", ".join(map(str, found.names(k))) for k in range(240)
    ]
    assert written["set_size"].tolist() == found.sizes.tolist()
    assert written["label"].equals(weather["label"])
    assert found.thresholds is not None
    is_judged = weather["label"].notna().to_numpy() & np.isfinite(found.thresholds)
    inside = [str(y) in found.names(k) for k, y in enumerate(weather["label"])]
    printed = json.loads(done.stdout)
    assert printed["total"]["n_rows"] == is_judged.sum()
    assert printed["total"]["corrected"] == pytest.approx(np.array(inside)[is_judged].mean())
    assert printed["total"]["width"] == pytest.approx(found.sizes[is_judged].mean())
    assert printed["n_warm_up"] == int(np.isinf(found.thresholds).sum()) > 0
    likely = []
    for row in p:  # the fewest classes that add up to 90 %
        order = np.argsort(-row)
        likely.append(set(order[: int(np.searchsorted(np.cumsum(row[order]), 0.9)) + 1]))
    assert printed["total"]["raw_width"] == pytest.approx(
        np.mean([len(one) for one, is_one in zip(likely, is_judged, strict=True) if is_one])
    )
    page = Path("p.html").read_text()
    assert "Set size over time" in page
    assert "Reliability" not in page


def test_sets_list_classes_in_the_order_of_the_file(run: Run, weather: pd.DataFrame) -> None:
    names = ["day", "site", "p_sun", "p_fog", "p_rain", "label"]
    weather[names].head(20).to_csv("weather.csv", index=False)
    run("forecast", "weather.csv", *WEATHER, "-o", "o.csv")
    assert pd.read_csv("o.csv")["prediction_set"][0] == "sun, fog, rain"


def test_sets_resume_as_if_they_had_never_stopped(run: Run, weather: pd.DataFrame) -> None:
    run("forecast", "weather.csv", *WEATHER, "--state", "a.json", "-o", "a.csv")
    early = weather[weather["day"] <= 60].copy()
    early.loc[early["day"] == 60, "label"] = None
    early.to_csv("early.csv", index=False)
    run("forecast", "early.csv", *WEATHER, "--state", "b.json", "-o", "b1.csv")
    weather[weather["day"] == 60].to_csv("truths.csv", index=False)
    judged = run("forecast", "truths.csv", *WEATHER, "--state", "b.json")
    issued = pd.read_csv("b1.csv").tail(2)
    y = weather.loc[weather["day"] == 60, "label"]
    n = sum(one in two.split(", ") for one, two in zip(y, issued["prediction_set"], strict=True))
    assert f"{n / 2:.1%}".replace("%", " %") in judged.stdout
    assert "In all runs, sets covered" in judged.stdout
    run("forecast", "weather.csv", *WEATHER, "--state", "b.json", "-o", "b2.csv")
    parts = pd.concat([pd.read_csv("b1.csv"), pd.read_csv("b2.csv")], ignore_index=True)
    whole = pd.read_csv("a.csv")
    assert parts.drop(columns="label").equals(whole.drop(columns="label"))
    assert Path("a.json").read_text() == Path("b.json").read_text()


def test_classes_and_numbers_are_not_mixed(run: Run, weather: pd.DataFrame) -> None:
    weather["level"] = 1.0
    weather.to_csv("weather.csv", index=False)
    run("forecast", "weather.csv", *WEATHER, "--state", "s.json")
    points = ["--time", "day", "--series", "site", "--forecast", "p_sun", "--label", "level"]
    weather["day"] += 1000
    weather.to_csv("later.csv", index=False)
    done = run("forecast", "later.csv", *points, "--state", "s.json")
    assert "must hold class probabilities, as before" in " ".join(done.stderr.split())
    weather["spread"] = weather["q_0.05"] = 0.5
    weather["q_0.95"] = 0.6
    weather.to_csv("later.csv", index=False)
    for outputs in (["--mean", "p_sun", "--std", "spread"], ["--quantiles", "q_*"]):
        words = [*points[:4], *outputs, "--label", "level"]
        done = run("forecast", "later.csv", *words, "--state", "s.json")
        assert done.exit_code == 2
        assert "must hold class probabilities, as before" in " ".join(done.stderr.split())
    several = run("forecast", "later.csv", "--time", "day", "--multilabel", "p_*")
    assert "one label per row" in " ".join(several.stderr.split())


def test_times_that_are_numbers_in_a_text_file_are_numbers(run: Run, weather: pd.DataFrame) -> None:
    done = run("forecast", "weather.csv", *WEATHER)
    assert "counts as known 1 after its forecast" in " ".join(done.stdout.split())


def test_long_tables_are_cut(run: Run, frame: pd.DataFrame) -> None:
    made = pd.DataFrame(make_forecasts(80))
    made.to_csv("long.csv", index=False)
    done = run("forecast", "long.csv", *OPTIONS, "--report", "page.html")
    months = sorted({one[:7] for one in made["date"]})
    n_shown = sum(line.startswith("202") for line in done.stdout.splitlines())
    assert n_shown == 12
    page = Path("page.html").read_text()
    judged = [one.replace("-", "\u2011") for one in months if one.replace("-", "\u2011") in page]
    assert f"{len(judged) - 12} earlier months are in --report and --json" in done.stdout
    assert page.index("Show the numbers") < page.index("By month")  # which is folded


@pytest.mark.slow
def test_intervals_around_coverages_allow_for_dates_that_are_alike() -> None:
    rng = np.random.default_rng(0)
    n_dates, n_series, held = 80, 5, []
    times = np.repeat(np.arange(n_dates), n_series)
    n = times.size
    for _ in range(30):
        shocks = rng.normal(size=(n_dates, 1 + n_series))
        for t in range(1, n_dates):
            shocks[t] = 0.5 * shocks[t - 1] + np.sqrt(0.75) * shocks[t]
        y = (np.sqrt(0.5) * (shocks[:, :1] + shocks[:, 1:])).ravel()
        found = forecast_coverage(
            y,
            None,
            (np.full(n, -10.0), np.full(n, norm.ppf(0.9))),
            level=0.9,
            series=["a"] * n,
            horizon=[0] * n,
            month=[str(t) for t in times // 4],
            time=times.astype(float),
        )
        rows = [found.total, found.by_month[3]]
        held.append([one.interval[0] <= 0.9 <= one.interval[1] for one in rows])
    assert np.mean(held, axis=0).min() > 0.85  # as for independent outcomes, it would be 0.43


def test_truths_of_few_dates_count_by_date() -> None:
    y = np.array([0.0] * 12 + [2.0] * 4)
    bounds = np.full(16, -1.0), np.ones(16)
    rest: dict[str, Any] = {
        "level": 0.9,
        "series": ["a"] * 16,
        "horizon": [0] * 16,
        "month": ["1"] * 16,
    }
    found = forecast_coverage(y, None, bounds, time=np.arange(16.0) // 4, **rest).total
    wilson = binomtest(3, 4).proportion_ci(method="wilson")  # of 4 dates, not of 16 outcomes
    assert found.interval == pytest.approx((wilson.low, wilson.high), abs=1e-6)


def test_other_files_are_no_states(run: Run, frame: pd.DataFrame) -> None:
    words = ["--quantiles", "q_*", "--label", "admissions"]
    known = frame.dropna(subset="admissions")
    known.to_csv("known.csv", index=False)
    run("fit", "known.csv", *words, "--cost-under", 4, "--cost-over", 1, "-o", "p.json")
    done = run("forecast", "all.csv", *OPTIONS, "--state", "p.json")
    text = " ".join(done.stderr.split())
    assert "p.json" in text
    assert "a policy (RegressionPolicy), not a state of forecasts" in text
    assert "dubito decide p.json" in text
    run("calibrate", "known.csv", *words, "-o", "c.json")
    done = run("forecast", "all.csv", *OPTIONS, "--state", "c.json")
    assert "not a state of forecasts" in " ".join(done.stderr.split())
    run("forecast", "all.csv", *OPTIONS, "--state", "s.json")
    done = run("decide", "s.json", "all.csv", *words[:2])
    text = " ".join(done.stderr.split())
    assert "the state of forecasts, not a policy. Use `dubito forecast`" in text


def test_horizons_that_are_missing_are_not_mentioned(run: Run, frame: pd.DataFrame) -> None:
    frame["horizon"] += 1
    frame.to_csv("later.csv", index=False)
    done = run("forecast", "later.csv", *OPTIONS)
    text = " ".join(done.stdout.split())
    assert "horizon 0" not in text
    assert "7 days after their forecast, times the horizon + 1 (set with --known)" in text


def test_the_report_of_sets_explains_no_column_of_intervals(
    run: Run, weather: pd.DataFrame
) -> None:
    run("forecast", "weather.csv", *WEATHER, "--report", "page.html")
    assert "score / raw" not in Path("page.html").read_text()
