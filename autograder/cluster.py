"""The workers of a run: dask's, in processes here or on other machines.

Whoever can talk to a dask scheduler or worker can run code as the user who started it. So everything here that listens speaks TLS, and
only with those who hold the key of this run, which is made for it and never outlives it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Nanny, Scheduler, Security, SpecCluster, Worker

PATIENCE = "30s"  # with a scheduler elsewhere


@dataclass(frozen=True)
class Remote:
    """A dask scheduler elsewhere. address: tls://host:8786, or tcp:// if unencrypted; ca, certificate, key: files in PEM, by which
    the scheduler and we know each other; without them those that dask's own configuration names."""

    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    unencrypted: bool = False

    def security(self) -> Security:
        """What to talk to it with.

        Raises:
            ValueError: for an address without encryption that nobody asked for, and for files that there are not or that do not fit.
        """
        files = {"tls_ca_file": self.ca, "tls_client_cert": self.certificate, "tls_client_key": self.key}
        given = {name: path for name, path in files.items() if path}
        missing = [path for path in given.values() if not Path(path).is_file()]
        if missing:
            raise ValueError(f"there is no file {', '.join(missing)}")
        if self.unencrypted:
            if given or self.address.startswith("tls://"):
                raise ValueError(f"{self.address} with certificates is encrypted: leave out --unencrypted")
            return Security()
        if not self.address.startswith("tls://"):
            raise ValueError(
                f"{self.address} is not encrypted: whoever can reach that scheduler can run code as you on each of its workers, and make "
                "marks. Start scheduler and workers with certificates, and name them: tls://…, --tls-ca, --tls-cert, --tls-key. Where "
                "really nobody else can reach it, --unencrypted does without."
            )
        security = Security(require_encryption=True, **given)
        if not (security.tls_ca_file and security.tls_client_cert):
            raise ValueError(f"{self.address} needs --tls-ca, --tls-cert and --tls-key: nothing else says whom to trust")
        try:
            security.get_connection_args("client")
        except OSError as error:  # of ssl: not a certificate, or not its key
            raise ValueError(f"the certificates cannot be used: {error}") from error
        return security


@contextlib.contextmanager
def workers(here: int) -> Iterator[Client]:
    """So many worker processes on this machine, and a client of theirs.

    Their key lies in this process's memory and theirs. OpenSSL reads it from a file, which dask writes for a moment into a folder that
    only this user may enter; so does `place`, from which workers may import.
    """
    security = Security.temporary()
    with quiet(), tempfile.TemporaryDirectory(prefix="workers-") as place:
        usual: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "protocol": "tls://", "security": security}
        worker = {"worker_class": _Worker, "nthreads": 1, "memory_limit": 0, "local_directory": place}
        with (
            SpecCluster(
                workers={number: {"cls": _Nanny, "options": {**usual, **worker}} for number in range(here)},
                scheduler={"cls": _Scheduler, "options": {**usual, "dashboard": False}},
                security=security,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client


@contextlib.contextmanager
def elsewhere(remote: Remote) -> Iterator[Client]:
    """A client of another machine's scheduler.

    Raises:
        ValueError: as `Remote.security`, and if nobody answers.
    """
    security = remote.security()
    with quiet(), contextlib.ExitStack() as stack:
        try:
            client = stack.enter_context(Client(remote.address, security=security, timeout=PATIENCE))
        except OSError as error:
            raise ValueError(f"no scheduler that takes us answers at {remote.address}: {error}") from error
        yield client


class _Silent:
    """dask's web pages and metrics need no certificate: without a server nobody reads them."""

    def start_http_server(self, *_args: Any, **_kwargs: Any) -> None:
        pass


class _Scheduler(_Silent, Scheduler):
    pass


class _Nanny(Nanny):
    async def kill(self, *args: Any, **kwargs: Any) -> None:
        """A run may end while a worker that died is being started again. dask cannot join what has not begun, and says so by an assertion,
        which would cost the run its tables. Nothing is left behind: such a process ends with this one."""
        with contextlib.suppress(AssertionError):
            await super().kill(*args, **kwargs)


class _Worker(_Silent, Worker):
    def __init__(self, *args: Any, **kwargs: Any):
        logging.disable()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):  # of its own process, in which a lost connection is a traceback
            os.dup2(nowhere, descriptor)
        super().__init__(*args, **kwargs)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without dask's own lines. A teacher can do nothing about a heartbeat or a lost connection, and what costs a mark stands in it."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)
