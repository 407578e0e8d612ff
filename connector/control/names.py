"""The second address of a control socket: a link to it.  The name of the link is the query's id.

The links are in a private folder (`wire.private_folder`), which client and server must share.  Otherwise another user
could answer that the query has stopped.
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pyspark_kafka_group.wire.private_folder import private_folder

PREFIX = "kafka-group-"
"""The beginning of the names of folders with a control socket."""

SOCKET = "control"
"""The name of a control socket in its folder."""


def publish(query_id: str, address: str) -> None:
    """Link the query's id to its control socket and replace the link of an earlier run; raise OSError on failure."""
    folder = _folder()
    for link in folder.iterdir():
        _remove_if_dead(link)
    new = folder / f"{query_id}.new-{os.getpid()}"
    new.symlink_to(address)
    new.replace(folder / query_id)


def _remove_if_dead(link: Path) -> None:
    """Remove the link and the socket of a process that was killed.  Nobody listens there, but the file stays."""
    address = ""
    try:
        address = os.readlink(link)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)  # a process that is busy is alive
            client.connect(address)  # not the path of the link, which may be too long for a socket
    except ConnectionRefusedError:
        if is_address(address):
            shutil.rmtree(Path(address).parent, ignore_errors=True)
        link.unlink(missing_ok=True)
    except FileNotFoundError:
        link.unlink(missing_ok=True)
    except OSError:
        pass  # for example, too many callers are waiting there


def keep(query_id: str, address: str) -> None:
    """Recreate the link if it is gone: programs that clean /tmp delete links that have not been used for some days."""
    try:
        os.utime(_folder() / query_id, follow_symlinks=False)
    except FileNotFoundError:
        publish(query_id, address)


def withdraw(query_id: str, address: str) -> None:
    """Remove the link, unless a later run of the query has replaced it."""
    with suppress(OSError):
        link = _folder() / query_id
        if os.readlink(link) == address:
            link.unlink()


def resolve(address: str) -> str:
    """Return the path of a control socket.  An address is either this path or the id of a query.

    Raises
    ------
    OSError
        If there is no such query on this machine.
    """
    try:
        name = str(uuid.UUID(address))
    except ValueError:
        return address
    return os.readlink(_folder() / name)


def query_ids() -> list[str]:
    """Return the ids of this user's queries on this machine, of which some may have been killed."""
    try:
        names = sorted(link.name for link in _folder().iterdir())
    except OSError:
        return []
    return [name for name in names if is_address(name) and "/" not in name]


def is_address(address: str) -> bool:
    """Return whether this may be the address of a control socket, not of another socket on this machine."""
    try:
        uuid.UUID(address)
    except ValueError:
        path = PurePosixPath(address)
        folder = path.parent.name
        return path.is_absolute() and ".." not in path.parts and folder.startswith(PREFIX) and path.name == SOCKET
    return True


def _folder() -> Path:
    return private_folder("queries")
