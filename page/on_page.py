"""What commands say, in the words of the page: it has choices where they have options."""

from __future__ import annotations

import re

_CHOICES = (
    (r" \(in Python: [^)]*\)", ""),
    (r" \(--on-exists rename\)", " (“rename”)"),
    (r"--on-exists rename", "“rename”"),
    (r"--resume\b", "“resume”"),
    (r"--force\b", "“force”"),
    (r"with --initialize-from", "by `remuda submit --initialize-from`"),
    (r"another (run )?folder( \(--run-dir\))?", "another name"),
)
_HINT = "; these are choices of “If its run folder exists” under Submit"


def on_page(text: str) -> str:
    """The text of a refusal without options of the command line, which nobody can give here."""
    found = text
    for option, choice in _CHOICES:
        found = re.sub(option, choice, found)
    return found + _HINT if "“" in found and "“" not in text else found
