"""Tokens: who may ask for what. Only their hashes are kept."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import final

from sqlalchemy import Connection, RowMapping, delete, exists, insert, select, text, update

from dubito.errors import BadValueError
from dubito.serve.refusals import CONFLICT, MISSING, RefusedError
from dubito.serve.store.inserting import insert_rows
from dubito.serve.store.tables import ended_sessions, tokens
from dubito.serve.store.tables import secrets as kept_secrets

SCOPES = ("decide", "review", "admin")
PREFIX = "dubito_"  # so that one that got lost is recognized


@final
@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; `name` is what its reader is called, and nobody else."""

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
    connection: Connection, name: str, scopes: Iterable[str], lifetime: float | None
) -> str:
    """Return a new token, which is not kept: it has 256 bits of chance, so that a hash will do."""
    wanted = sorted(set(scopes))
    if not wanted or not set(wanted) <= set(SCOPES):
        rule, fix = f"one or more of {', '.join(SCOPES)}", "--scope decide"
        raise BadValueError(
            "--scope", "dubito token create", rule, ", ".join(wanted) or "none", fix
        )
    _require_free(connection, name)
    token = PREFIX + secrets.token_urlsafe(32)
    now = time.time()
    connection.execute(
        insert(tokens).values(
            name=name,
            hash=_hash_of(token),
            scopes=" ".join(wanted),
            created=now,
            expires=None if lifetime is None else now + lifetime,
        )
    )
    return token


def _require_free(connection: Connection, name: str) -> None:
    """Raise where a name is that of a valid token: rows in review are held by name."""
    if connection.dialect.name == "postgresql":  # SQLite lets nobody else write meanwhile
        connection.execute(text("LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE"))
    wanted = select(tokens).where(tokens.c.name == name)
    same = [_known(row) for row in connection.execute(wanted).mappings()]
    if valid := [one.id for one in same if one.is_valid]:
        problem = f"Token {valid[0]} is of {name!r} already, and readers are told apart by name"
        fix = f"another --name, or `dubito token revoke {valid[0]}` first"
        raise RefusedError(CONFLICT, problem, fix)


def _hash_of(token: str) -> str:
    """Return what is kept of a token."""
    return sha256(token.encode("utf-8", "replace")).hexdigest()


def find_token(connection: Connection, token: str) -> Token | None:
    """Return what is known of a token, valid or not, or None."""
    row = connection.execute(select(tokens).where(tokens.c.hash == _hash_of(token))).mappings()
    found = row.first()
    return None if found is None else _known(found)


def token_of_session(connection: Connection, session_id: str, token_id: int) -> Token | None:
    """Return what is known of the token that began a session, None where someone ended it."""
    is_ended = exists().where(ended_sessions.c.id == session_id)
    wanted = select(tokens).where(tokens.c.id == token_id, ~is_ended)
    found = connection.execute(wanted).mappings().first()
    return None if found is None else _known(found)


def end_session(connection: Connection, session_id: str, until: float) -> None:
    """End a session for good; those that would be over by now are forgotten."""
    connection.execute(delete(ended_sessions).where(ended_sessions.c.until < time.time()))
    insert_rows(connection, ended_sessions, {"id": [session_id], "until": [until]})


def session_secret(connection: Connection) -> bytes:
    """Return what sessions are signed with; the first process that asks makes it."""
    insert_rows(connection, kept_secrets, {"name": ["session"], "value": [secrets.token_bytes(32)]})
    wanted = select(kept_secrets.c.value).where(kept_secrets.c.name == "session")
    return bytes(connection.execute(wanted).scalar_one())


def all_tokens(connection: Connection) -> list[Token]:
    """Return all tokens, oldest first."""
    return [
        _known(row) for row in connection.execute(select(tokens).order_by(tokens.c.id)).mappings()
    ]


def revoke_token(connection: Connection, token_id: int) -> None:
    """Make a token invalid for good."""
    wanted = update(tokens).where(tokens.c.id == token_id)
    if not connection.execute(wanted.values(revoked=time.time())).rowcount:
        raise RefusedError(MISSING, f"There is no token {token_id}", "an id of `dubito token list`")


def _known(row: RowMapping) -> Token:
    """Return a row as a token."""
    kept = {name: row[name] for name in ("id", "name", "created", "expires", "revoked")}
    return Token(**kept, scopes=frozenset(row["scopes"].split()))
