import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine

from dubito.decide import Policy
from dubito.doubt import OnlineConformal
from dubito.serve.store import Store
from studies.common.serving import SCRIPT
from tests.cli.conftest import Run


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would have been served, instead of serving it."""
    calls: list[Any] = []

    def noted(store: Store, settings: Any, taken: Any, reviewers: Any = None) -> None:
        calls.append((store.active_id(), len(store.decisions_since()), settings))
        taken.close()

    monkeypatch.setattr("dubito.serve.run.run", noted)
    return calls


def test_the_address_is_printed(run: Run, made: Path, served: list[Any]) -> None:
    words = ["--port", 0, "--blind", "--audit-fraction", 0.05, "--retention-days", 7]
    done = run("serve", made / "policy.json", *words)
    assert done.exit_code == 0
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("Serving policy 1 at http://127.0.0.1:")
    assert "dubito token create --scope decide" in last
    [(active, _, settings)] = served
    assert active == 1
    assert (settings.blind, settings.audit_fraction, settings.retention_days) == (True, 0.05, 7)


def test_a_team_is_checked_before_it_is_served(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teams: list[Any] = []
    monkeypatch.setattr("dubito.serve.run.run", lambda *given: teams.append(given[3].names))
    Path("team.csv").write_text("name,capacity_per_day,error_rate\nann,40,0.02\nbob,30,0.1\n")
    words = ("serve", made / "policy.json", "--port", 0, "--team", "team.csv")
    assert run(*words).exit_code == 0
    Path("team.csv").write_text("name,capacity_per_day\nann,40\n")
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "row 1, column error_rate must be given" in done.stderr
    assert teams == [("ann", "bob")]


def test_it_reports_which_policy_is_active(run: Run, made: Path, served: list[Any]) -> None:
    newer = made / "newer.json"
    fitted = Policy.load(made / "policy.json")
    replace(fitted, provenance={**fitted.provenance, "random_state": 99}).save(newer)
    assert "active" not in run("serve", made / "policy.json", "--port", 0).stderr
    message = run("serve", newer, "--port", 0).stderr
    assert "policy 2 is new and replaces policy 1." in message
    message = run("serve", made / "policy.json", "--port", 0).stderr
    assert "policy 2 stays active: the file is policy 1, which is older." in message
    assert [active for active, *_ in served] == [1, 2, 2]


def test_a_state_of_forecasts_is_recognized(run: Run, made: Path, served: list[Any]) -> None:
    online = OnlineConformal()
    online.replay([1.0, 2.0, 3.0], [1.5, 2.5, None])
    Path("state.json").write_text(json.dumps(online.to_dict()))
    for _ in range(2):  # a restart goes on
        done = run("serve", "state.json", "--port", 0)
        assert done.stdout.startswith("Serving forecasts at http://127.0.0.1:")
    other = run("serve", "state.json", "--port", 0, "--database", "sqlite:///my tokens.db")
    message = "--scope review --database 'sqlite:///my tokens.db'"
    assert message in " ".join(other.stdout.split())
    online.update([3.5])
    Path("state.json").write_text(json.dumps(online.to_dict()))
    for file in ("state.json", made / "policy.json"):
        done = run("serve", file, "--port", 0)
        assert done.exit_code == 2
        assert "another" in done.stderr
    assert [active for active, *_ in served] == [None] * 3


def test_a_file_that_is_served_is_left_alone(
    run: Run, made: Path, served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dubito.serve.store.store.LOCK_SECONDS", 0.1)
    first = Store.open("sqlite:///dubito.db")
    first.lock()
    done = run("serve", made / "policy.json", "--port", 0)
    assert done.exit_code == 2
    assert "must be a file that no other process serves" in " ".join(done.stderr.split())
    assert (served, first.list_policies()) == ([], [])
    first.close()


def test_an_open_address_is_warned_about(run: Run, made: Path, served: list[Any]) -> None:
    assert "TLS" not in run("serve", made / "policy.json", "--port", 0).stderr
    message = run("serve", made / "policy.json", "--port", 0, "--host", "0.0.0.0").stderr
    assert "other machines can reach this address: put a TLS proxy in front of it." in message


def test_hosts_are_those_of_the_options(run: Run, made: Path, served: list[Any]) -> None:
    words = ["serve", made / "policy.json", "--port", 0]
    run(*words)
    run(*words, "--host", "0.0.0.0", "--allowed-host", "a.org", "--allowed-host", "b.org")
    assert [tuple(settings.allowed_hosts) for *_, settings in served] == [
        ("127.0.0.1",),
        ("a.org", "b.org", "0.0.0.0"),
    ]
    assert "--allowed-host" in run(*words, "--host", "0.0.0.0").stderr
    done = run(*words, "--allowed-host", "http://a.org")
    assert done.exit_code == 2
    assert "must be a host name or address" in done.stderr


def test_an_address_of_version_6_is_printed_as_one(run: Run, made: Path, served: list[Any]) -> None:
    done = run("serve", made / "policy.json", "--port", 0, "--host", "::1", "--json")
    assert httpx.URL(json.loads(done.stdout)["address"]).host == "::1"


def test_a_database_that_others_can_read_exits_with_2(run: Run, made: Path) -> None:
    run("token", "list")
    Path("dubito.db").chmod(0o644)
    for words in (["serve", made / "policy.json"], ["token", "list"]):
        done = run(*words)
        assert done.exit_code == 2
        assert "chmod 600 " in done.stderr
    Path("dubito.db").chmod(0o600)
    assert run("token", "list").exit_code == 0


def test_a_password_on_the_command_line_is_warned_about(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open("sqlite:///dubito.db")
    store.engine = create_engine("postgresql+psycopg://ann:secret@host/name")
    monkeypatch.setattr(Store, "open", lambda _: store)
    monkeypatch.setattr(Store, "list_tokens", lambda _: [])
    done = run("token", "list", "--database", "postgresql+psycopg://ann:secret@host/name")
    assert "use PGPASSWORD or ~/.pgpass" in " ".join(done.stderr.split())
    assert "secret" not in done.stderr + done.stdout


@pytest.mark.slow
def test_the_demo_is_filled_and_gives_a_token(run: Run, served: list[Any]) -> None:
    done = run("serve", "--demo", "--port", 0, "--json")
    printed = json.loads(done.stdout)
    assert printed["token"].startswith("dubito_")
    assert served[0][1] > 100


def test_wrong_calls_are_reported(run: Run, made: Path) -> None:
    for words, message in {
        (): "dubito serve needs a policy file or --demo, got neither.",
        (str(made / "policy.json"), "--demo"): "needs a policy file or --demo, got both.",
        ("missing.json",): "missing.json cannot be read",
        (
            str(made / "policy.json"),
            "--audit-fraction",
            "2",
        ): "Use --audit-fraction 0.01.",
        (str(made / "policy.json"), "--port", "99999"): "--port must be between 0 and 65535",
        (
            str(made / "policy.json"),
            "--database",
            "oracle://x",
        ): "--database must be",
        (str(made / "policy.json"), "--database", "sqlite:///no/x.db"): "(unable to open database",
    }.items():
        done = run("serve", *words)
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())


@pytest.mark.slow
def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fastapi'] = None\n"
        "sys.argv = ['dubito', 'token', 'list']\n"
        "from dubito.cli import main; main()"
    )
    python = Path(SCRIPT).with_name("python")
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "dubito token) needs a set of web packages (FastAPI and others)" in done.stderr
    assert "pip install 'dubito[serve]'" in done.stderr


def test_a_retention_must_be_a_number_of_days(run: Run, made: Path) -> None:
    done = run("serve", made / "policy.json", "--retention-days", -1)
    assert done.exit_code == 2
    assert "--retention-days must be a number of days above 0, got -1." in done.stderr
    assert "Pass --retention-days 30." in done.stderr


def test_a_token_is_printed_once_and_last(run: Run) -> None:
    done = run("token", "create", "--scope", "decide", "--scope", "review", "--name", "ann")
    token = done.stdout.splitlines()[-1]
    assert done.stdout == f"{token}\n"
    assert token.startswith("dubito_")
    assert "shown only once" in done.stderr
    store = Store.open("sqlite:///dubito.db")
    found = store.find_token(token)
    store.close()
    assert found is not None
    assert (found.name, found.scopes) == ("ann", frozenset({"decide", "review"}))


def test_tokens_are_listed_and_revoked(run: Run) -> None:
    assert run("token", "list").stdout == "No tokens yet.\n"
    made = run("token", "create", "--scope", "admin", "--days", "1", "--json")
    assert json.loads(made.stdout)["scopes"] == ["admin"]
    [row] = json.loads(run("token", "list", "--json").stdout)
    assert (row["id"], row["name"], row["is_valid"]) == (1, "me", True)
    assert run("token", "revoke", "1").stdout == "Token 1 was revoked.\n"
    output = run("token", "list").stdout
    assert "revoked" in output
    assert "dubito_" not in output
    assert json.loads(run("token", "revoke", "1", "--json").stdout) == {"revoked": 1}
    run("token", "create", "--scope", "review", "--name", "ann")
    assert run("token", "revoke", "ann").stdout == "Token 2 was revoked.\n"
    assert "no valid token named 'ann'" in run("token", "revoke", "ann").stderr


def test_two_reviewers_cannot_have_the_same_name(run: Run) -> None:
    assert run("token", "create", "--scope", "review").exit_code == 0
    done = run("token", "create", "--scope", "review")
    assert done.exit_code == 2
    assert "Token 1 already has the name 'me'" in done.stderr


def test_wrong_tokens_are_reported(run: Run) -> None:
    for words, message in {
        ("create", "--scope", "root"): "must be one or more of decide, review, admin, got root.",
        ("create", "--scope", "decide", "--days", "0"): "--days must be",
        ("create", "--scope", "decide", "--name", ""): "--name must be 1 to 200 printable",
        ("revoke", "9"): "There is no token 9.",
        ("list", "--database", "mysql://x"): "--database must be",
    }.items():
        done = run("token", *words)
        assert done.exit_code == 2
        assert message in done.stderr
    assert Path("dubito.db").exists()
