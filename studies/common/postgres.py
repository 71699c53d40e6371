"""A temporary PostgreSQL server on the loopback interface."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["cluster", "free_port", "new_database"]

USER = "dubito"


@contextmanager
def cluster(under: Sequence[str] = ()) -> Iterator[str]:
    """Yield the address of a server with default settings, without a database name.

    `under` is the command of a program that runs the server.
    """
    with TemporaryDirectory(prefix="dubito-postgres-") as folder:
        data, port = f"{folder}/data", free_port()
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(folder, "postgres")
        run("initdb", "-D", data, "-A", "trust", "-U", USER, "--no-sync")
        where = f"-p {port} -h 127.0.0.1 -k {folder}"
        started = ("-D", data, "-w", "-o", where, "-l", f"{folder}/log", "start")
        run("pg_ctl", *started, under=under)
        try:
            yield f"postgresql+psycopg://{USER}@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")


def new_database(server: str, name: str) -> str:
    """Create a database and return its address."""
    port = server.rpartition(":")[2]
    run("createdb", "-h", "127.0.0.1", "-p", port, "-U", USER, name)
    return f"{server}/{name}"


def run(program: str, *arguments: str, under: Sequence[str] = ()) -> None:
    """Run a PostgreSQL program, not as root, optionally under another program."""
    found = shutil.which(program)
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    command = [*under, found or str(places[-1]), *arguments]
    if os.geteuid() == 0:
        command = ["runuser", "-u", "postgres", "--", *command]
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/", check=False
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr}")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
