"""Whether this machine speaks IPv6."""

from __future__ import annotations

import contextlib
import socket

import pytest


def _has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6, not even for itself")
