"""`dubito serve POLICY`: decisions over HTTP, and a review of what was rejected."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dubito.serve.store import Store

__all__ = ["DATABASE", "Database", "serve"]

DATABASE = "sqlite:///dubito.db"
Database = Annotated[
    str, typer.Option(help="sqlite:///file, or postgresql+psycopg://user@host/name.")
]


def serve(
    policy: Annotated[Path | None, typer.Argument(help="What `dubito fit` wrote.")] = None,
    database: Database = DATABASE,
    host: Annotated[str, typer.Option(help="Where to listen: here only, by default.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.")] = 8000,
    audit_share: Annotated[
        float, typer.Option(help="Share of all rows that is looked at, whatever was decided.")
    ] = 0.01,
    blind: Annotated[
        bool, typer.Option("--blind", help="Hide from readers what the model thinks.")
    ] = False,
    retention_days: Annotated[
        float | None, typer.Option(help="Delete decisions that are older; else keep all.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve the sample that ships with dubito.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Decide over HTTP, keep what was decided, and let people settle what was rejected.

    Example: dubito serve policy.json --port 8000
    """
    import sys

    from dubito.cli.printing import say, say_json, say_note
    from dubito.decide import Policy
    from dubito.errors import BadValueError
    from dubito.serve import demo as sample
    from dubito.serve.running import is_loopback, listening, put_in_force, run
    from dubito.serve.settings import Settings
    from dubito.serve.store import Store

    if (policy is None) != demo:
        got = "neither" if policy is None else "both"
        raise BadValueError("policy", "dubito serve", "given, or else --demo", got, "policy.json")
    settings = Settings(audit_share=audit_share, is_blind=blind, retention_days=retention_days)
    loaded = sample.demo_policy() if policy is None else Policy.load(policy)
    store = Store.open(database)
    try:
        store.hold()
        taken = listening(host, port)
        before, of_file = store.active_id(), put_in_force(store, loaded)
        active = store.active_id()
        if active != of_file:
            say_note(f"policy {active} stays in force: the file is policy {of_file}, from before.")
        elif before not in (None, active):
            say_note(f"policy {active} is new, and in force from now on instead of {before}.")
        token = sample.fill(store, loaded) if demo else None
        address = f"http://{host}:{taken.getsockname()[1]}"
        if not is_loopback(host):
            say_note("others can reach this address: put a proxy with TLS before it.")
        if as_json:
            say_json({"address": address, "token": token})
        else:
            say(f"Serving policy {active} at {address} until Ctrl-C, in {where(store)}.")
            if token is not None:
                say(f"Sign in with this token: {token}")
            elif not store.tokens():
                say("Nobody has a token yet: dubito token create --scope decide --scope review")
        sys.stdout.flush()  # whoever started it waits for the address
        run(store, settings, taken)
    finally:
        store.close()


def where(store: Store) -> str:
    """Return the address of a database without its password."""
    return store.engine.url.render_as_string(hide_password=True)
