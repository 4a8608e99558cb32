"""Pack the project for readers, without solutions: the archive that the site's first page links to.

    python scripts/pack.py specdec.zip
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
SECRET = ("solutions", "autograder/zoo")


def git(root: Path, *arguments: str, **options) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True, **options).stdout.strip()


def write_zip(root: Path, tree: str, archive: Path, *before: str) -> None:
    left_out = [f":!{name}" for name in SECRET]
    git(root, *before, "archive", "--format=zip", "--prefix=specdec/", f"--output={archive.resolve()}", tree, "--", ".", *left_out)


def pack(archive: Path, root: Path = ROOT) -> None:
    """Of a clone, the last commit: what somebody tried in an exercise since then stays at home. Of a copy without history, such as
    this archive unpacked, all that .gitignore does not name."""
    if (root / ".git").exists():
        write_zip(root, "HEAD", archive)
        return
    with TemporaryDirectory() as folder:
        git(root, "init", "--quiet", "--bare", folder)
        here = (f"--git-dir={folder}", f"--work-tree={root}")
        git(root, *here, "-c", "core.bare=false", "add", "--all")
        write_zip(root, git(root, *here, "write-tree"), archive, *here)


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
