import json
from pathlib import Path

from dubito.serve.store import Store
from tests.cli.conftest import Run


def test_a_token_is_printed_once_and_last(run: Run) -> None:
    done = run("token", "create", "--scope", "decide", "--scope", "review", "--name", "ann")
    token = done.stdout.splitlines()[-1]
    assert done.stdout == f"{token}\n"
    assert token.startswith("dubito_")
    assert "shown this once" in done.stderr
    store = Store.open("sqlite:///dubito.db")
    found = store.find_token(token)
    store.close()
    assert found is not None
    assert (found.name, found.scopes) == ("ann", frozenset({"decide", "review"}))


def test_tokens_are_listed_and_revoked(run: Run) -> None:
    assert run("token", "list").stdout == "There is no token yet.\n"
    made = run("token", "create", "--scope", "admin", "--days", "1", "--json")
    assert json.loads(made.stdout)["scopes"] == ["admin"]
    [row] = json.loads(run("token", "list", "--json").stdout)
    assert (row["id"], row["name"], row["is_valid"]) == (1, "me", True)
    assert run("token", "revoke", "1").stdout == "Token 1 is not valid any more.\n"
    told = run("token", "list").stdout
    assert "not valid" in told
    assert "dubito_" not in told
    assert json.loads(run("token", "revoke", "1", "--json").stdout) == {"revoked": 1}


def test_two_readers_are_not_called_the_same(run: Run) -> None:
    assert run("token", "create", "--scope", "review").exit_code == 0
    done = run("token", "create", "--scope", "review")
    assert done.exit_code == 2
    assert "Token 1 is of 'me' already" in done.stderr


def test_wrong_tokens_are_told(run: Run) -> None:
    for words, told in {
        ("create", "--scope", "root"): "must be one or more of decide, review, admin. Got root.",
        ("create", "--scope", "decide", "--days", "0"): "`--days` of dubito token create must be",
        ("create", "--scope", "decide", "--name", ""): "--name must be 1 to 200 printable",
        ("revoke", "9"): "There is no token 9.",
        ("list", "--database", "mysql://x"): "`--database` of dubito serve must be",
    }.items():
        done = run("token", *words)
        assert done.exit_code == 2
        assert told in done.stderr
    assert Path("dubito.db").exists()
