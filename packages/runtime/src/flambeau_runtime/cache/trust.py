"""Whether a folder can be trusted to hold code: only we, or root, may change it or swap any part of its path.

In: a path. Out: a `Verdict`: the path with symbolic links resolved, or why the folder is not used. What lies in the cache is loaded into
this process, so whoever can write there runs code as us; ssh asks the same of its key files (StrictModes).

The path is walked from the root of the file system, each part opened below the one before, so that what was looked at is what the next
step starts from. A part passes if it belongs to us or to root and neither its group nor others may write to it. Others may write to a folder
with the sticky bit (/tmp): there they cannot replace what is ours. A symbolic link passes as a part does, and is followed in the same way.
"""

from __future__ import annotations

import contextlib
import functools
import grp
import os
import pwd
import stat
import tempfile
import warnings
from pathlib import Path

from attrs import frozen

from .. import log

_LINKS = 40
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class Verdict:
    """What was found out about a folder.

    Attributes:
        folder: its path without symbolic links; None when it must not be used.
        exists: whether all of it exists.
        reason: why it must not be used, and what would help.
    """

    folder: Path | None
    exists: bool = False
    reason: str = ""


class _Refused(Exception):
    """The path has a part that others may change; the message says which."""


def examine(folder: str | os.PathLike[str]) -> Verdict:
    """Look at every part of a folder's path; parts that do not exist yet are ours to make."""
    pending = list(reversed(Path(os.path.abspath(folder)).parts[1:]))
    done: list[str] = []
    try:
        with contextlib.ExitStack() as stack:
            handles = [_opened(stack, "/", None)]
            _check(Path("/"), os.fstat(handles[0]), last=False)
            links = 0
            while pending:
                name = pending.pop()
                path = Path("/", *done, name)
                if name == "..":
                    del done[-1:], handles[max(1, len(handles) - 1) :]
                    continue
                handle = _opened(stack, name, handles[-1])
                status = os.fstat(handle)
                if not stat.S_ISLNK(status.st_mode):
                    _check(path, status, last=not pending)
                    done.append(name)
                    handles.append(handle)
                    continue
                links += 1
                if links > _LINKS:
                    raise _Refused(f"{path} is one of too many symbolic links")
                _check_owner(path, status)
                target = Path(os.readlink("", dir_fd=handle))
                if target.is_absolute():
                    del done[:], handles[1:]
                pending += reversed([part for part in target.parts if part != "/"])
    except _Refused as refused:
        return Verdict(None, reason=str(refused))
    except FileNotFoundError:
        return Verdict(Path("/", *done, name, *reversed(pending)))
    except OSError:
        # What cannot be looked at cannot be read from either; writing to it says why.
        return Verdict(Path(os.path.abspath(folder)))
    return Verdict(Path("/", *done), exists=True)


def belongs_to_us(status: os.stat_result) -> bool:
    """Whether a file was put there by us or by root, and nobody else may write to it."""
    return status.st_uid in (0, os.geteuid()) and not _others_may_write(status)


@functools.cache
def scratch_folder() -> str | None:
    """Where what is built lies until it is loaded: None for Python's default, another folder where that one cannot be trusted."""
    fresh = f"flambeau-{os.urandom(8).hex()}"
    verdict = examine(Path(tempfile.gettempdir(), fresh))
    if verdict.folder is not None:
        return None
    warnings.warn(f"{log.SCRATCH_REFUSED}: {verdict.reason}", RuntimeWarning, stacklevel=4)
    others = (examine(Path(folder, fresh)).folder for folder in ("/tmp", "/var/tmp", "/dev/shm"))
    return next((str(found.parent) for found in others if found is not None), None)


def _opened(stack: contextlib.ExitStack, name: str, parent: int | None) -> int:
    handle = os.open(name, _LOOK, dir_fd=parent)
    stack.callback(os.close, handle)
    return handle


def _check(path: Path, status: os.stat_result, *, last: bool) -> None:
    """Refuse a part that others may change."""
    _check_owner(path, status)
    is_sticky = bool(status.st_mode & stat.S_ISVTX) and not last
    if stat.S_ISDIR(status.st_mode) and _others_may_write(status) and not is_sticky:
        who = "everybody" if status.st_mode & stat.S_IWOTH else f"the group {status.st_gid}"
        raise _Refused(f"{who} may write to {path}; chmod go-w {path} ends that")


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _Refused(f"{path} belongs to user {status.st_uid}, not to us ({os.geteuid()}) or root")


def _others_may_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_gid)


def _is_private_group(group: int) -> bool:
    """Whether the group is one user's own, as where the umask is 002: it bears the user's name and has no other members."""
    try:
        owner, entry = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_gid == owner.pw_gid and entry.gr_name == owner.pw_name and set(entry.gr_mem) <= {owner.pw_name}
