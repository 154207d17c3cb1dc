"""Errors of a disk that is full: what is written may wait until somebody makes room."""

from __future__ import annotations

import errno

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
