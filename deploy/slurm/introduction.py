"""What a job whose node does not see the launch's folder and its launch tell each other, as comments of the job.

Comments can be read by others, so nothing in them is secret: first the job's public key, then the same key with the
address and the public key of the coordinator. Only the job's owner, and who administers Slurm, can write them. Pure.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

_ASKS, _ANSWER = "remuda-key:", "remuda-connection:"
_PUBLIC = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Answer:
    """What lets a job in."""

    public: str
    """The key that was let in. A job that was started again has another one; this is no answer to it."""
    connection: bytes
    """The content of the connection file."""


def asking(public: str) -> str:
    """The comment of a job that has this key, and wants to be let in."""
    return _ASKS + public


def asks(comment: str) -> str | None:
    """The public key in such a comment; None if it is another one."""
    public = comment.removeprefix(_ASKS)
    return public if comment.startswith(_ASKS) and _PUBLIC.fullmatch(public) else None


def answering(answer: Answer) -> str:
    """The comment of a job that is let in."""
    return f"{_ANSWER}{answer.public}:{base64.urlsafe_b64encode(answer.connection).decode('ascii')}"


def answered(comment: str) -> Answer | None:
    """What such a comment says; None if it is another one."""
    public, _, connection = comment.removeprefix(_ANSWER).partition(":")
    if not (comment.startswith(_ANSWER) and _PUBLIC.fullmatch(public)):
        return None
    try:
        return Answer(public, base64.b64decode(connection, altchars=b"-_", validate=True))
    except ValueError:  # binascii.Error is one, too
        return None
