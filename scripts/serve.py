"""Serve the built book on this computer: `python scripts/serve.py _build/html --port 8000`."""

import argparse
import errno
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    """The standard handler, without a line for every file."""

    def log_message(self, format, *args):
        return


def bind(folder: Path, first: int, tries: int = 100) -> ThreadingHTTPServer:
    """A server for `folder` on the first free port from `first` on."""
    for port in range(first, min(first + tries, 65536)):
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
    raise SystemExit(f"Error: no free port from {first} to {first + tries - 1}. Choose another: make book PORT=9000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="first port to try")
    arguments = parser.parse_args()
    if not (arguments.folder / "index.html").is_file():
        raise SystemExit(f"Error: {arguments.folder} holds no index.html. Build the book first: make site")
    with bind(arguments.folder, arguments.port) as server:
        print(f"\nThe book is at http://localhost:{server.server_port}/  (Ctrl-C stops it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nStopped.")


if __name__ == "__main__":
    main()
