"""`dubito serve POLICY` and `dubito token`: decisions over HTTP, and access tokens."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.options import command
from dubito.cli.printing import put, say, say_json, say_note, show_table
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.serve.store import Store
    from dubito.serve.store.policies import ServedPolicy

DATABASE = "sqlite:///dubito.db"


@command()
def serve(
    policy: Path | None = None,
    *,
    database: str = DATABASE,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed_host: list[str] | None = None,
    labels: str = "audited",
    audit_fraction: float | None = None,
    team: Path | None = None,
    blind: bool = False,
    retention_days: float | None = None,
    demo: bool = False,
) -> None:
    """Serve decisions over HTTP, with a log and a review queue for rejected rows.

    Given a state of forecasts, serve intervals or sets that adapt as outcomes arrive.

    Example: dubito serve policy.json --port 8000

    Example: dubito serve state.json --database sqlite:///forecasts.db

    Options
    -------
    policy
        Policy written by `dubito fit`, cascade of `dubito cascade fit`, or state of `dubito
        forecast --state`.
    host
        Address to listen on; by default this machine only.
    port
        Port to listen on; 0 picks a free port.
    allowed_host
        Host name that clients use; repeatable. localhost always works.
    labels
        Which labels metrics use: audited (a random sample, plus rejected rows) or all (you send
        a label for every row, possibly late).
    audit_fraction
        Fraction of all rows sent to review at random. Default: 0.01.
    team
        Reviewers with their capacities and error rates, CSV or JSON: a row goes to the reviewer
        whose answer has the highest value. Names are those of tokens.
    blind
        Hide model predictions from reviewers.
    retention_days
        Delete decisions older than this. Default: keep all.
    demo
        Serve the bundled sample data.
    as_json
        Print the address as JSON.
    """
    import sys
    from dataclasses import replace

    from dubito.decide import ReviewTeam
    from dubito.decide.policy.loading import load_policy_or_cascade
    from dubito.serve import demo_data
    from dubito.serve.forecasts import deploy_state, load_state
    from dubito.serve.run import is_loopback, open_socket, run
    from dubito.serve.service import PolicyCatalog, Settings
    from dubito.serve.team import TeamQueue

    if (policy is None) != demo:
        got = "neither" if policy is None else "both"
        rule, fix = "needs a policy file or --demo", "Run dubito serve policy.json"
        raise BadValueError("", "dubito serve", rule, got, fix)
    _require_valid(labels, audit_fraction, retention_days)
    settings = Settings(
        audit_fraction=0.01 if audit_fraction is None else audit_fraction,
        labels=labels,
        blind=blind,
        retention_days=retention_days,
        allowed_hosts=allowed_host or (),
    )
    reviewers = None if team is None else ReviewTeam.load(team)
    state = None if policy is None else load_state(policy)
    if policy is None:
        served: Any = demo_data.demo_policy()
    else:
        served = load_policy_or_cascade(policy) if state is None else None
    with closing(_open_store(database)) as store:
        store.lock()
        with open_socket(host, port) as listener:
            what = "forecasts"
            if state is not None:
                deploy_state(store, state, str(policy))
            else:
                what = f"policy {_deploy(store, served)}"
            if reviewers is not None:  # raises if the policy is not for it
                TeamQueue.open(reviewers, store, PolicyCatalog(store), settings)
            token = demo_data.fill_demo(store, served) if demo else None
            name = f"[{host}]" if ":" in host else host
            address = f"http://{name}:{listener.getsockname()[1]}"
            if not is_loopback(host):
                say_note("other machines can reach this address: put a TLS proxy in front of it.")
                if not allowed_host:
                    say_note("clients that use a host name are refused: pass it as --allowed-host.")
            say_json({"address": address, "token": token})
            say(f"Serving {what} at {address} until Ctrl-C, in {store.address}.")
            _say_sign_in(store, token, database)
            sys.stdout.flush()  # the parent process waits for the address
            settings = replace(settings, allowed_hosts=(*settings.allowed_hosts, host))
            run(store, settings, listener, reviewers)


def _require_valid(labels: str, fraction: float | None, days: float | None) -> None:
    """Raise for values out of range, and for a sample of rows that all get a label."""
    rule, fix = "", ""
    if fraction and labels == "all":
        rule, fix = "must be left out with --labels all", "Leave it out: all rows get a label"
    elif fraction is not None and not 0 <= fraction <= 1:
        rule, fix = "must be between 0 and 1", "Use --audit-fraction 0.01"
    if rule:
        raise BadValueError("", "--audit-fraction", rule, f"{fraction:g}", fix)
    if days is not None and not 0 < days < float("inf"):
        rule, fix = "must be a number of days above 0", "Pass --retention-days 30"
        raise BadValueError("", "--retention-days", rule, f"{days:g}", fix)


def _say_sign_in(store: Store, token: str | None, database: str) -> None:
    """Print the token of the sample data, or how to create the first one."""
    from shlex import quote

    if token is not None:
        say(f"Sign in with this token: {token}")
    elif not store.list_tokens():
        more = "" if database == DATABASE else f" --database {quote(store.address)}"
        say("There is no token yet. Create one with:")
        put(f"  dubito token create --scope decide --scope review{more}")


def _deploy(store: Store, policy: ServedPolicy) -> int | None:
    """Activate a policy if it is new; return the id of the active one."""
    from dubito.serve.policies import deploy_policy

    before, of_file = store.active_id(), deploy_policy(store, policy)
    active = store.active_id()
    if active != of_file:
        say_note(f"policy {active} stays active: the file is policy {of_file}, which is older.")
    elif before not in (None, active):
        say_note(f"policy {active} is new and replaces policy {before}.")
    return active


def _open_store(database: str) -> Store:
    """Return the database, and warn about a password that other users can see."""
    from dubito.serve.store import Store

    store = Store.open(database)
    if store.has_password:
        say_note("other users can see the password in --database: use PGPASSWORD or ~/.pgpass.")
    return store


token = typer.Typer(
    name="token", help="Create, list or revoke access tokens of the service.", no_args_is_help=True
)
DAY = 86_400.0


@token.command()
@command()
def create(
    *,
    scope: list[str],
    name: str = "me",
    days: float | None = None,
    database: str = DATABASE,
) -> None:
    """Create an access token and print it once; it is not stored in clear text.

    Example: dubito token create --scope decide --scope review --name ann

    Options
    -------
    scope
        decide, review or admin; repeatable.
    name
        Name of the user; identifies reviewers.
    days
        Days until it expires. Default: never.
    as_json
        Print the result as JSON.
    """
    from dubito.serve.schemas import check_name

    if days is not None and not 0 < days < 36_500:
        rule, fix = "must be above 0 and below 36500", "Pass --days 90"
        raise BadValueError("", "--days", rule, f"{days:g}", fix)
    with closing(_open_store(database)) as store:
        lifetime = None if days is None else days * DAY
        created = store.create_token(check_name(name, "--name"), scope, lifetime)
    if say_json({"name": name, "scopes": sorted(set(scope)), "token": created}):
        return
    say_note(f"keep this token safe: it is shown only once. Scopes of {name}: {', '.join(scope)}.")
    put(created)


@token.command("list")
@command()
def list_tokens(*, database: str = DATABASE) -> None:
    """List tokens with their users, scopes and validity.

    Example: dubito token list

    Options
    -------
    as_json
        Print the result as JSON.
    """
    from datetime import UTC, datetime

    with closing(_open_store(database)) as store:
        found = store.list_tokens()
    rows: list[dict[str, Any]] = [
        {
            "id": one.id,
            "name": one.name,
            "scopes": sorted(one.scopes),
            "created": datetime.fromtimestamp(one.created, UTC).isoformat(timespec="seconds"),
            "is_valid": one.is_valid,
        }
        for one in found
    ]
    say_json(rows)
    if not rows:
        say("No tokens yet.")
        return
    lines = [
        (f"{row['id']} {row['name']}", " ".join(row["scopes"]), row["created"],
         "valid" if row["is_valid"] else "revoked or expired")
        for row in rows
    ]  # fmt: skip
    show_table(("id and name", "scopes", "created", ""), lines)


@token.command()
@command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="ID")],
    *,
    database: str = DATABASE,
) -> None:
    """Revoke a token permanently.

    Example: dubito token revoke ann

    Options
    -------
    token
        Id or name from `dubito token list`.
    as_json
        Print the result as JSON.
    """
    from dubito.serve.http_errors import NOT_FOUND, HTTPError

    with closing(_open_store(database)) as store:
        known = store.list_tokens()
        is_id = token.isascii() and token.isdigit()
        found = [one.id for one in known if is_id and one.id == int(token)]
        found += [one.id for one in known if one.name == token and one.is_valid]
        if not found:
            what = f"token {token}" if is_id else f"valid token named {token!r}"
            fix = "Use an id or a name from `dubito token list`"
            raise HTTPError(NOT_FOUND, f"There is no {what}", fix)
        token_id = found[0]
        store.revoke_token(token_id)
    say_json({"revoked": token_id})
    say(f"Token {token_id} was revoked.")
