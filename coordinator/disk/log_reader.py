"""Reads an experiment's logs for clients, which need no access to the run folder.

The cost of one request is bounded: a look at a folder, and a part of a few files.
"""

from __future__ import annotations

from pathlib import Path

from remuda.coordinator.effects import ReadLog
from remuda.coordinator.events import LogRead
from remuda.logbook import tail
from remuda.logbook.tail import LogEntry, NoSuchSourceError
from remuda.storage.run_folder import RunFolder
from remuda.wire.messages import LogPiece, LogPosition, LogText, Rejected

PIECES = 16
"""Maximum number of files in one answer; the rest follows with the next."""


def read_log(effect: ReadLog) -> LogRead:
    """Read on from the client's position."""
    log, request = RunFolder(Path(effect.run_dir)).log, effect.request
    known = {position.file: position for position in request.positions}
    try:
        found = {each.file: each for each in tail.find(log, request.source)}
        waiting = _waiting(found, known)
        pieces = [_piece(log, file, known.get(file), request.last_lines, effect.is_over) for file in waiting[:PIECES]]
    except NoSuchSourceError as error:
        return LogRead(effect.requester, Rejected("unknown", str(error)))
    except OSError as error:
        return LogRead(effect.requester, Rejected("invalid", f"the log cannot be read: {error}"))
    more = len(waiting) > PIECES
    over = effect.is_over and not more and not any(piece.text for piece in pieces)
    return LogRead(effect.requester, LogText(pieces, over, more))


def _waiting(found: dict[str, LogEntry], known: dict[str, LogPosition]) -> list[str]:
    """Return files new to the client, then files that have grown. The client lists the files in the order of its last
    answers, so the last file read comes last."""
    begun = [file for file, position in known.items() if file in found and found[file].has_news(position)]
    return [*(file for file in found if file not in known), *begun]


def _piece(log: Path, file: str, known: LogPosition | None, last_lines: int | None, is_over: bool) -> LogPiece:
    piece = tail.read(log, known or tail.begin(log, file, last_lines), to_the_end=is_over)
    return LogPiece(piece.position, tail.label(file), piece.text)
