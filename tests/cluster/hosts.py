"""Three hosts on one machine: network namespaces with own addresses, joined by a switch whose links can be cut.

The switch is a namespace, too, so the machine's own network is left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from secrets import token_hex
from types import TracebackType
from typing import Self, TypeVar

NETWORK = "10.77.0"
_CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")


def can_make_hosts() -> bool:
    """Whether this process may make network namespaces."""
    if os.geteuid() or shutil.which("ip") is None:
        return False
    name = f"remuda-{token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], check=True)
    return made


class Hosts:
    """So many hosts, numbered from 1; host n has the address 10.77.0.n. A context manager."""

    def __init__(self, count: int = 3) -> None:
        mark = token_hex(3)
        self._switch = f"remuda-{mark}-switch"
        self._names = {number: f"remuda-{mark}-{number}" for number in range(1, count + 1)}

    def __enter__(self) -> Self:
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
            for number, name in self._names.items():
                self._plug_in(number, name)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, number: int) -> str:
        """Of a host."""
        return f"{NETWORK}.{number}"

    def cut(self, number: int) -> None:
        """Pull the cable of a host out of the switch."""
        _ip("-n", self._switch, "link", "set", f"port{number}", "down")

    def mend(self, number: int) -> None:
        """Plug it in again."""
        _ip("-n", self._switch, "link", "set", f"port{number}", "up")

    def command(self, number: int, *command: object, hide: Sequence[str] = ()) -> list[str]:
        """What runs a command on a host; the folders `hide` are empty there."""
        mounts = "".join(f'mount -t tmpfs none "{folder}" && ' for folder in hide)
        shell = ["sh", "-c", f'{mounts}exec "$@"', "sh"]
        return ["ip", "netns", "exec", self._names[number], *shell, *map(str, command)]

    def on(self, number: int, call: Callable[[], _T]) -> _T:
        """Call something, by a thread whose sockets and children are those of a host."""
        results: list[_T] = []
        errors: list[BaseException] = []

        def there() -> None:
            try:
                self._move_to(number)
                results.append(call())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def _move_to(self, number: int) -> None:
        descriptor = os.open(f"/run/netns/{self._names[number]}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)

    def _plug_in(self, number: int, name: str) -> None:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")
        port = f"port{number}"
        _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        _ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "route", "add", "default", "via", self.address(1)) if number > 1 else None

    def _remove(self) -> None:
        for name in (*self._names.values(), self._switch):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
