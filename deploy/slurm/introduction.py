"""What a job whose node does not see the launch's folder and its launch tell each other, as comments of the job.

Comments can be read by others, so nothing in them is secret: first the job's public key, then the address and the
public key of the coordinator. Only the job's owner, and who administers Slurm, can write them. Pure.
"""

from __future__ import annotations

import base64
import re

_ASKS, _ANSWER = "remuda-key:", "remuda-connection:"
_PUBLIC = re.compile(r"[0-9a-f]{64}")


def asking(public: str) -> str:
    """The comment of a job that has this key, and wants to be let in."""
    return _ASKS + public


def asks(comment: str) -> str | None:
    """The public key in such a comment; None if it is another one."""
    public = comment.removeprefix(_ASKS)
    return public if comment.startswith(_ASKS) and _PUBLIC.fullmatch(public) else None


def answering(connection: bytes) -> str:
    """The comment of a job that is let in: the content of the connection file."""
    return _ANSWER + base64.urlsafe_b64encode(connection).decode("ascii")


def answer(comment: str) -> bytes | None:
    """The content of the connection file in such a comment; None if it is another one."""
    if not comment.startswith(_ANSWER):
        return None
    try:
        return base64.b64decode(comment.removeprefix(_ANSWER), altchars=b"-_", validate=True)
    except ValueError:  # binascii.Error is one, too
        return None
