"""The commands of `remuda keys`: permissions of clients and workers at a coordinator."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from remuda.cli.connecting import WAIT_S, ConnectionPath, awaited
from remuda.cli.errors import InputError
from remuda.cli.options import DEFAULT_RUNS_DIR, AsJson, RunsDir, epilog, new_group

if TYPE_CHECKING:
    from remuda.wire.keys.folder import KeysFolder

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key, for example the user's name.")]
PublicArgument = Annotated[
    str, typer.Argument(metavar="PUBLIC-KEY", help="The public key printed by `remuda keys new`.")
]
NewPublic = Annotated[
    str | None,
    typer.Argument(metavar="[PUBLIC-KEY]", help="The new key; not needed for a key that lies in the runs folder."),
]
RightOption = Annotated[
    Literal["viewer", "operator", "worker"],
    typer.Option(help="viewer: status and logs; operator: also submit, stop, shut down; worker: only work."),
]
InvitationFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not exist.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Where the secret key is kept (default: ~/.remuda/NAME.key)."),
]

group = new_group(
    "Keys: who may speak to the coordinator of a runs folder.",
    example="remuda keys list --runs-dir runs",
)


@group.command(epilog=epilog("remuda keys new alice"))
def new(name: NameArgument, file: KeyFile = None, as_json: AsJson = False) -> None:
    """Make a key of your own for a coordinator of another user; prints the public key.

    The secret key stays in its file, readable by you alone. Give the public key to the operator of the coordinator.
    """
    from remuda.storage.existing_folder import make_private
    from remuda.wire.keys.authorized import checked
    from remuda.wire.keys.folder import KEY_FILE
    from remuda.wire.keys.pair import new_pair
    from remuda.wire.keys.secret_file import write_secret

    with _wrong_input():
        pair = new_pair(name)
        checked(name, pair.public, "viewer", "keys new")
        path = (file or Path.home() / ".remuda" / f"{name}.key").absolute()
        make_private(path.parent)
        try:
            write_secret(path, pair)
        except FileExistsError:
            raise InputError(f"{path} exists: choose another name or --file, or remove it first") from None
    if as_json:
        print(json.dumps({"name": name, "public_key": pair.public, "file": str(path)}))
        return
    print(pair.public)
    print(f"the secret key is in {path}; before you use it: export {KEY_FILE}={quote(str(path))}", file=sys.stderr)
    print(f"ask the coordinator's operator for: remuda keys add {name} {pair.public} --right viewer", file=sys.stderr)


@group.command(epilog=epilog("remuda keys add alice 64-HEXADECIMAL-DIGITS --right viewer"))
def add(
    name: NameArgument, public_key: PublicArgument, right: RightOption, runs_dir: RunsDir = DEFAULT_RUNS_DIR
) -> None:
    """Let the owner of a key in. A running coordinator accepts the key at once."""
    with _wrong_input():
        folder = _folder(runs_dir)
        folder.save()
        folder.add(name, public_key, right)
    print(f"{name} is let in as {right}: {folder.authorized}", file=sys.stderr)


@group.command(epilog=epilog("remuda keys invite node7 node7.json"))
def invite(
    name: NameArgument,
    file: InvitationFile,
    right: RightOption = "worker",
    runs_dir: RunsDir = DEFAULT_RUNS_DIR,
    connection_file: ConnectionPath = None,
) -> None:
    """Write a connection file for another machine, with a new key inside: the other machine needs nothing else.

    The holder of the file has the permissions of the key, until `remuda keys revoke NAME`. Only you can read the file.
    """
    from msgspec.structs import replace

    from remuda.wire import connection_file as connections
    from remuda.wire.connection_file import ConnectionFileError, HandedKey
    from remuda.wire.keys.pair import new_pair

    with _wrong_input():
        if file.exists():
            raise InputError(f"{file} exists: choose another name, or remove it first")
        try:
            connection = connections.read(awaited(connection_file, runs_dir, WAIT_S))
        except ConnectionFileError as error:
            raise InputError(f"{error}: the coordinator has to run, since its address is part of the file") from error
        pair = new_pair(name)
        _existing(runs_dir).add(name, pair.public, right)
        connections.write(file, replace(connection, runs_dir="", own_key=HandedKey(name, pair.secret.hex())))
    print(f"{name} is let in as {right}; on that machine: --connection-file {quote(file.name)}", file=sys.stderr)


@group.command("list", epilog=epilog("remuda keys list --json"))
def list_keys(runs_dir: RunsDir = DEFAULT_RUNS_DIR, as_json: AsJson = False) -> None:
    """List the keys with permissions. Secret keys are never shown."""
    with _wrong_input():
        known = _existing(runs_dir).listed()
    if as_json:
        rows = [{"name": each.name, "right": each.right, "public_key": public} for public, each in known.items()]
        print(json.dumps(rows, indent=2))
        return
    for public, each in known.items():
        print(f"{each.name:<20} {each.right:<9} {public}")


@group.command(epilog=epilog("remuda keys revoke alice"))
def revoke(name: NameArgument, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Remove the permissions of a key; a running coordinator ends its connections within a second.

    Your own keys, operator and worker, can only be replaced: remuda keys rotate.
    """
    with _wrong_input():
        identity = _existing(runs_dir).revoke(name)
    print(f"{identity.name} ({identity.right}) is not let in any more", file=sys.stderr)


@group.command(epilog=epilog("remuda keys rotate worker"))
def rotate(name: NameArgument, public_key: NewPublic = None, runs_dir: RunsDir = DEFAULT_RUNS_DIR) -> None:
    """Replace a key; prints the new public key. Name and right stay, and the former key loses its permissions.

    Workers of this machine switch to the new key. The coordinator's own key (NAME coordinator) takes effect at its next
    start.
    """
    with _wrong_input():
        public = _existing(runs_dir).rotate(name, public_key)
    print(public)


def _folder(runs_dir: Path) -> KeysFolder:
    from remuda.wire.keys.folder import FOLDER, KeysFolder

    return KeysFolder(runs_dir.absolute() / FOLDER)


def _existing(runs_dir: Path) -> KeysFolder:
    folder = _folder(runs_dir)
    if folder.is_new:
        raise InputError(
            f"there are no keys in {folder.path}: start a coordinator or type `remuda keys add` to make them, or name "
            "the right runs folder with --runs-dir"
        )
    return folder


@contextmanager
def _wrong_input() -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename} cannot be written: {error.strerror}") from error
