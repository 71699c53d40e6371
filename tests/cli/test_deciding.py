import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dubito.decide import write_decisions
from tests.cli.conftest import Run


def files_of(made: Path) -> list[Path]:
    """Return three files, each with a bad row."""
    files: list[Path] = []
    for name in ("sure", "calm", "later"):
        frame = pd.read_csv(made / f"{name}_new.csv").astype({"logit_cat": object})
        frame.loc[len(files), "logit_cat"] = f"bad, {name}"
        frame.to_csv(f"{name}.csv", index=False)
        files.append(Path(f"{name}.csv"))
    return files


def test_a_folder_has_a_part_a_file_and_a_stopped_run_goes_on(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(made)
    words = ["decide", made / "policy.json", *files, "--bad-rows", "errors.csv", "--json"]
    whole = run(*words, "-o", "whole", "--review", "whole.csv")
    assert json.loads(whole.stdout)["rows"] == 3 * 399
    errors = Path("errors.csv").read_text()
    assert errors.count("must be numbers") == 3

    seen: list[str] = []

    def interrupted(*arguments: Any, source: str, **settings: Any) -> int:
        seen.append(source)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return write_decisions(*arguments, source=source, **settings)

    monkeypatch.setattr("dubito.cli.decision_run.write_decisions", interrupted)
    Path("errors.csv").unlink()
    assert run(*words, "-o", "parts").exit_code != 0
    assert sorted(path.name for path in Path("parts").iterdir()) == [
        "_manifest.jsonl",
        "part-00000.parquet",
    ]
    resumed = run(*words, "-o", "parts", "--review", "parts.csv")
    assert json.loads(resumed.stdout) == {
        **json.loads(whole.stdout),
        "output": "parts",
    }
    assert seen == ["sure.csv", "calm.csv", "calm.csv", "later.csv"]
    assert Path("errors.csv").read_text() == errors
    assert Path("parts.csv").read_text() == Path("whole.csv").read_text()
    for part in Path("whole").glob("*.parquet"):
        assert pd.read_parquet(part).equals(pd.read_parquet(Path("parts") / part.name))


def test_an_interrupted_file_leaves_nothing(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dubito.cli.decision_run.write_decisions", interrupted)
    assert run("decide", made / "policy.json", made / "sure_new.csv").exit_code != 0
    assert list(Path().iterdir()) == []


def test_other_settings_need_another_folder(run: Run, made: Path) -> None:
    shutil.copy(made / "sure_new.csv", "new.csv")
    words = ["decide", made / "policy.json", "new.csv", "-o", "parts"]
    assert run(*words).exit_code == 0
    done = run(*words, "--id", "id")
    assert done.exit_code == 2
    assert "columns {'id': 'id'} (was {})" in done.stderr
    assert "Try another folder." in done.stderr
