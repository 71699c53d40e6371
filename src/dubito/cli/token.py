"""`dubito token`: who may ask the service for what."""

from typing import Annotated, Any

import typer

from dubito.cli.serve import DATABASE, Database

__all__ = ["token"]

token = typer.Typer(help="Make, list or revoke tokens of the service.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
DAY = 86_400.0


@token.command()
def create(
    scope: Annotated[list[str], typer.Option(help="decide, review or admin; may be repeated.")],
    name: Annotated[str, typer.Option(help="Whose it is: readers are told apart by it.")] = "me",
    days: Annotated[float | None, typer.Option(help="How long it is valid; else for good.")] = None,
    database: Database = DATABASE,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it: it is not kept, so that it cannot be shown again.

    Example: dubito token create --scope decide --scope review --name ann
    """
    from dubito.cli.printing import say_json, say_note
    from dubito.errors import BadValueError
    from dubito.serve.bodies import as_name
    from dubito.serve.store import Store

    if days is not None and not 0 < days < 36_500:
        raise BadValueError("--days", "dubito token create", "above 0", f"{days:g}", "--days 90")
    store = Store.open(database)
    try:
        lifetime = None if days is None else days * DAY
        made = store.create_token(as_name(name, "--name"), scope, lifetime)
    finally:
        store.close()
    if as_json:
        say_json({"name": name, "scopes": sorted(set(scope)), "token": made})
        return
    say_note(f"keep it safe, as it is shown this once; it lets {name} {', '.join(scope)}.")
    print(made)


@token.command("list")
def listed(database: Database = DATABASE, as_json: AsJson = False) -> None:
    """List tokens: who has them, for what, and whether they are valid.

    Example: dubito token list
    """
    from datetime import UTC, datetime

    from dubito.cli.printing import say, say_json, show_table
    from dubito.serve.store import Store

    store = Store.open(database)
    try:
        found = store.tokens()
    finally:
        store.close()
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
    if as_json:
        say_json(rows)
    elif not rows:
        say("There is no token yet.")
    else:
        lines = [
            (f"{row['id']} {row['name']}", " ".join(row["scopes"]), row["created"],
             "valid" if row["is_valid"] else "not valid")
            for row in rows
        ]  # fmt: skip
        show_table(("token", "scopes", "created", ""), lines)


@token.command()
def revoke(
    number: Annotated[int, typer.Argument(help="Its number in `dubito token list`.")],
    database: Database = DATABASE,
    as_json: AsJson = False,
) -> None:
    """Make a token invalid, for good.

    Example: dubito token revoke 1
    """
    from dubito.cli.printing import say, say_json
    from dubito.serve.store import Store

    store = Store.open(database)
    try:
        store.revoke_token(number)
    finally:
        store.close()
    if as_json:
        say_json({"revoked": number})
    else:
        say(f"Token {number} is not valid any more.")
