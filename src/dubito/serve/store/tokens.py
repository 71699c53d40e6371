"""Access tokens and sessions in the database; tokens are stored as hashes only."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, final

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, select, text, update

from dubito.errors import BadValueError
from dubito.serve.http_errors import CONFLICT, NOT_FOUND, HTTPError
from dubito.serve.store.tables import ended_sessions, tokens
from dubito.serve.store.tables import secrets as secrets_table
from dubito.serve.store.writer import insert_rows

SCOPES = ("decide", "review", "admin")
PREFIX = "dubito_"  # makes a leaked token recognizable


@final
@dataclass(frozen=True, slots=True)
class Token:
    """The record of a token; valid tokens have distinct names, which identify reviewers."""

    id: int
    name: str
    scopes: frozenset[str]
    created: float
    expires: float | None
    revoked: float | None

    @property
    def is_valid(self) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or self.expires > time.time())


def create_token(
    connection: Connection, name: str, scopes: Iterable[str], lifetime: float | None = None
) -> str:
    """Return a new token; only its hash is stored.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    name : str
        Identifies the user; no other valid token may have it.
    scopes : iterable of {"decide", "review", "admin"}
        What the token allows.
    lifetime : float or None
        Seconds until it expires, None for never.

    Returns
    -------
    str
        The token, which cannot be shown again.
    """
    given = sorted(set(scopes))
    if not given or not set(given) <= set(SCOPES):
        rule, got = f"must be one or more of {', '.join(SCOPES)}", ", ".join(given) or "none"
        raise BadValueError("--scope", "dubito token create", rule, got, "Use --scope decide")
    if connection.dialect.name == "postgresql":  # SQLite has a single writer anyway
        connection.execute(text("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE"))
    same = _find(connection, tokens.c.name == name)
    if valid := [one.id for one in same if one.is_valid]:
        problem = f"Token {valid[0]} already has the name {name!r}, and names identify reviewers"
        fix = f"Use another --name, or run `dubito token revoke {valid[0]}` first"
        raise HTTPError(CONFLICT, problem, fix)
    token = PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    connection.execute(
        insert(tokens).values(
            name=name,
            hash=_hash(token),
            scopes=" ".join(given),
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
    )
    return token


def _hash(token: str) -> str:
    """Return the stored hash of a token: 256 random bits need no salt."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def find_token(connection: Connection, token: str) -> Token | None:
    """Return the record of a token.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    token : str
        The token itself.

    Returns
    -------
    Token or None
        Valid or not; None if it is unknown.
    """
    return next(iter(_find(connection, tokens.c.hash == _hash(token))), None)


def list_tokens(connection: Connection) -> list[Token]:
    """Return all tokens, oldest first."""
    return _find(connection)


def revoke_token(connection: Connection, token_id: int) -> None:
    """Make a token invalid for good.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    token_id : int
        Its id in `list_tokens`.
    """
    query = update(tokens).where(tokens.c.id == token_id).values(revoked=time.time())
    if not connection.execute(query).rowcount:
        problem = f"There is no token {token_id}"
        raise HTTPError(NOT_FOUND, problem, "Use an id from `dubito token list`")


def session_token(connection: Connection, session_id: str, token_id: int) -> Token | None:
    """Return the token that started a session.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    session_id : str
        The id of the session.
    token_id : int
        The id of its token.

    Returns
    -------
    Token or None
        Valid or not; None if the session was ended.
    """
    is_ended = exists().where(ended_sessions.c.id == session_id)
    return next(iter(_find(connection, tokens.c.id == token_id, ~is_ended)), None)


def end_session(connection: Connection, session_id: str, until: float) -> None:
    """End a session; records of expired sessions are deleted.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    session_id : str
        The id of the session.
    until : float
        When it would expire.
    """
    connection.execute(delete(ended_sessions).where(ended_sessions.c.until < time.time()))
    insert_rows(connection, ended_sessions, {"id": [session_id], "until": [until]})


def session_secret(connection: Connection) -> bytes:
    """Return the key that signs sessions; the first process creates it."""
    columns: dict[str, list[Any]] = {"name": ["session"], "value": [secrets.token_bytes(32)]}
    insert_rows(connection, secrets_table, columns)
    query = select(secrets_table.c.value).where(secrets_table.c.name == "session")
    return bytes(connection.execute(query).scalar_one())


def _find(connection: Connection, *conditions: ColumnElement[bool]) -> list[Token]:
    """Return the tokens that meet all conditions, oldest first."""
    names = (one.name for one in fields(Token))
    query = select(*(tokens.c[name] for name in names)).where(*conditions).order_by(tokens.c.id)
    rows = connection.execute(query).mappings()
    return [Token(**{**row, "scopes": frozenset(row["scopes"].split())}) for row in rows]
