"""Whether an experiment that waits for more workers than are free lets others have those meanwhile."""

from __future__ import annotations

FIRST_S = 60.0
"""How long others may overtake it at first. Then what is free is kept for it for as long, and so on in turn; each time
twice as long as the time before."""


def may_be_overtaken(waited_s: float) -> bool:
    """After it has waited for so long.

    So at most half of the time something is kept idle for it; and it does not wait for ever: when what is free is kept
    for longer than the others' runs take, all that they hold comes free, and it begins. Where no run takes longer than
    D seconds, that is so before 8 D seconds have passed (or three minutes, where that is longer).
    """
    length_s = FIRST_S
    while waited_s >= 2 * length_s:
        waited_s -= 2 * length_s
        length_s *= 2
    return waited_s < length_s
