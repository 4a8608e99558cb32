"""Who may talk to the processes of a run: those who hold its key, and nobody else."""

import os
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import distributed
import psutil
import pytest
from distributed import Client, Security
from typer.testing import CliRunner

from autograder import cluster, runner
from autograder.__main__ import app

NOBODY, EVERYBODYS = 65534, shutil.which("python3", path="/usr/bin:/bin")
KNOCK = """
import os, socket, ssl, sys
print(os.getuid())
for context in (None, ssl._create_unverified_context()):
    try:
        end = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)
        end = context.wrap_socket(end) if context else end
        end.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        print("something" if end.recv(100) else "nothing")
    except OSError:
        print("nothing")
"""


@pytest.fixture(scope="module")
def running():
    with cluster.workers(2) as client:
        yield client


def listening():
    """{port: who} of everything that this process and its workers listen on, and no address but this machine's own."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = {}
    for process in family:
        for connection in process.net_connections("all"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip == "127.0.0.1", f"{process} listens on {connection.laddr}"
                found[connection.laddr.port] = process
    return found


def hears(port, context, request):
    """What comes back over a connection: bytes, or why there is none."""
    with ExitStack() as stack:
        end = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        try:
            if context is not None:
                end = stack.enter_context(context.wrap_socket(end))
            end.sendall(request)
            return end.recv(100) or "closed"
        except OSError as error:
            return type(error).__name__


def test_workers_work(running):
    assert running.submit(os.getpid).result() in {process.pid for process in psutil.Process().children()}


def test_everything_that_listens_asks_for_the_run_s_certificate(running):
    """Scheduler, two nannies, two workers: no page for a browser, no word for a client without a certificate or with one of its own."""
    nobody, foreign = ssl._create_unverified_context(), Security.temporary().get_connection_args("client")["ssl_context"]
    foreign.verify_mode = ssl.CERT_NONE  # it would talk to anybody
    ours = running.security.get_connection_args("client")["ssl_context"]
    ports = listening()
    assert len(ports) == 5
    for port in ports:
        for context, request in [(None, b"GET / HTTP/1.0\r\n\r\n"), (None, bytes(8)), (nobody, bytes(8)), (foreign, bytes(8))]:
            assert isinstance(hears(port, context, request), str), f"{ports[port]} answers a stranger on port {port}"
        assert isinstance(hears(port, ours, bytes(8)), bytes), "whoever holds the key must be answered, or this test shows nothing"


@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_a_foreign_client_is_refused(running, protocol):
    address = running.scheduler.address.replace("tls", protocol)
    security = Security.temporary() if protocol == "tls" else None
    with pytest.raises(OSError), Client(address, timeout="1s", security=security, set_as_default=False) as client:
        client.run_on_scheduler(os.getuid)


@pytest.mark.skipif(os.getuid() != 0 or not EVERYBODYS, reason="needs root, and a Python that another user may run")
def test_another_user_hears_nothing(running):
    for port in listening():
        told = subprocess.run(
            [EVERYBODYS, "-I", "-c", KNOCK, str(port)], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", env={},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert told.stdout.split() == [str(NOBODY), "nothing", "nothing"], f"port {port} answers another user"


def test_no_other_user_can_read_the_key_or_write_what_workers_import(running):
    """dask puts the folder of a worker, and the one that it lies in, on the worker's path."""
    for place in running.run(lambda dask_worker: dask_worker.local_directory).values():
        assert any(folder.stat().st_mode & 0o077 == 0 for folder in Path(place).parents), f"others can get into {place}"
    assert "BEGIN" in running.security.tls_client_key, "the key lies in memory, not in a file"


# -- another machine's scheduler ---------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    """The three files of an authority that everybody has."""
    security = Security.temporary()
    for name, text in [("ca", security.tls_ca_file), ("cert", security.tls_client_cert), ("key", security.tls_client_key)]:
        (tmp_path / name).write_text(text)
    return {"ca": str(tmp_path / "ca"), "certificate": str(tmp_path / "cert"), "key": str(tmp_path / "key")}


def test_a_scheduler_in_the_clear_must_be_asked_for():
    with pytest.raises(ValueError, match="whoever can reach that scheduler can run code as you"):
        cluster.Remote("tcp://host:8786").security()
    with pytest.raises(ValueError, match="is not encrypted"):
        cluster.Remote("host:8786").security()
    assert not cluster.Remote("tcp://host:8786", unencrypted=True).security().require_encryption


def test_certificates_must_be_there_and_fit(files, tmp_path):
    assert cluster.Remote("tls://host:8786", **files).security().require_encryption
    with pytest.raises(ValueError, match="needs --tls-ca, --tls-cert and --tls-key"):
        cluster.Remote("tls://host:8786").security()
    with pytest.raises(ValueError, match="there is no file nowhere"):
        cluster.Remote("tls://host:8786", **{**files, "key": "nowhere"}).security()
    (tmp_path / "key").write_text(Security.temporary().tls_client_key)
    with pytest.raises(ValueError, match="the certificates cannot be used"):
        cluster.Remote("tls://host:8786", **files).security()
    with pytest.raises(ValueError, match="leave out --unencrypted"):
        cluster.Remote("tls://host:8786", **files, unencrypted=True).security()


def test_a_scheduler_that_does_not_know_us_is_a_clear_error(running, files, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", "1s")
    remote = cluster.Remote(running.scheduler.address, **files)
    with pytest.raises(ValueError, match="no scheduler that takes us"), cluster.elsewhere(remote):
        pass


def test_the_command_says_so(tmp_path):
    (tmp_path / "in").mkdir()
    command = ["grade", str(tmp_path / "in"), str(tmp_path / "out"), "--scheduler", "tcp://127.0.0.1:1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "is not encrypted" in result.output
    assert not (tmp_path / "out").exists(), "nothing may be written before it refuses"
    result = CliRunner().invoke(app, ["grade", str(tmp_path / "in"), str(tmp_path / "out"), "--tls-ca", "ca.pem"])
    assert result.exit_code == 2
    assert "--scheduler" in result.output


def test_dask_s_own_lines_do_not_reach_the_teacher(capfd):
    """A worker that dies, strangers that knock, and a job that raises: all of it is in marks, or nobody's business."""
    with cluster.workers(1) as client:
        for port in listening():
            hears(port, None, b"GET / HTTP/1.0\r\n\r\n")
        future = client.submit(os._exit, 1, retries=0, allow_other_workers=False, pure=False)
        with pytest.raises(Exception, match=r"worker died|KilledWorker|Attempted to run"):
            future.result(timeout=60)
    assert "".join(capfd.readouterr()) == ""


def test_a_run_ends_well_while_a_worker_is_being_started_again(monkeypatch):
    """What dask says then, every time: it is a race, which a test cannot count on."""
    kill = distributed.Nanny.kill

    async def too_early(self, *args, **kwargs):
        await kill(self, *args, **kwargs)
        raise AssertionError("can only join a started process")

    monkeypatch.setattr(distributed.Nanny, "kill", too_early)
    with cluster.workers(1) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def test_there_are_as_many_workers_as_jobs_and_no_more_than_submissions(monkeypatch):
    asked = []
    monkeypatch.setattr(cluster, "workers", lambda here: asked.append(here) or pytest.skip.Exception)
    for jobs, submissions in [(1, 9), (3, 9), (3, 1)]:
        with pytest.raises(TypeError):
            next(runner.judged([None] * submissions, runner.Run(jobs)))
    assert asked == [1, 3, 1]
