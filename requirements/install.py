"""Make the environment and install packages into it, with progress; what goes wrong is said in one line.

``python requirements/install.py runtime`` is for running Flowcast, ``… dev`` for working on it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import venv
from collections import deque
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
NOTE_SECONDS = 10.0
KEPT_LINES = 200
NO_INDEX = ("(from versions: none)", "NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError")


def main(which: str) -> None:
    """Install what one of the requirement files pins; to run Flowcast, also Flowcast itself from where it is."""
    try:
        make_environment()
        # What is worked with is compiled as it is used, for most of it never is; that would take as long as the rest.
        later = ["--no-compile"] if which == "dev" else []
        install(*later, "--requirement", str(ROOT / "requirements" / f"{which}.txt"), packages=pinned(which))
        if which == "runtime":
            install("--no-deps", "--editable", str(ROOT), packages=1)
    except OSError as problem:
        sys.exit(f"make: {explained(str(problem))}")
    except KeyboardInterrupt:
        sys.exit("make: interrupted; the next run goes on from here")


def make_environment() -> None:
    """Make ``.venv``, or make it again where an interruption left half of it."""
    if PYTHON.exists() and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    print("making the environment .venv", flush=True)
    try:
        venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=True)
    except (subprocess.CalledProcessError, ImportError) as problem:
        said = str(getattr(problem, "output", None) or problem)
        why = explained(said) if "No space" in said else "Python came without venv; on Debian apt install python3-venv"
        sys.exit(f"make: {why}")


def install(*options: str, packages: int) -> None:
    """Run pip, and tell of each package that it takes up rather than all it says."""
    command = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--retries", "1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    assert process.stdout is not None
    said: deque[str] = deque(maxlen=KEPT_LINES)
    progress = Progress(packages)
    for line in process.stdout:
        said.append(line)
        if re.match(r"Collecting |Requirement already satisfied|Obtaining ", line):
            progress.found()
        elif line.startswith("Installing collected"):
            progress.unpack()
    progress.end()
    if process.wait() != 0:
        sys.exit(f"make: {explained(''.join(said))}")


class Progress:
    """One line that is rewritten on a terminal, and elsewhere one every ten seconds."""

    def __init__(self, packages: int) -> None:
        self._packages, self._found, self._said = packages, 0, 0.0
        self._terminal = sys.stdout.isatty()
        self.say(f"installing {packages} packages" if packages > 1 else "installing Flowcast")

    def found(self) -> None:
        """Count one more package."""
        self._found += 1
        if self._terminal or time.monotonic() > self._said + NOTE_SECONDS:
            self.say(f"fetching packages: {min(self._found, self._packages)} of {self._packages}")

    def unpack(self) -> None:
        """Tell that all of them are there, and what takes the rest of the time."""
        if self._packages > 1:
            self.say(f"unpacking {self._packages} packages")

    def say(self, words: str) -> None:
        """Show what is happening now."""
        self._said = time.monotonic()
        print(f"\r\033[K{words}" if self._terminal else words, end="" if self._terminal else "\n", flush=True)

    def end(self) -> None:
        """Leave the line as it was before."""
        if self._terminal:
            print("\r\033[K", end="", flush=True)


def pinned(which: str) -> int:
    """Count the packages that a requirement file names, with those of the files it refers to."""
    return sum(1 for _ in _lines(which))


def _lines(which: str) -> Iterator[str]:
    for line in (ROOT / "requirements" / f"{which}.txt").read_text().splitlines():
        if line.startswith("-r "):
            yield from _lines(line[3:].removesuffix(".txt"))
        elif line and not line.startswith("#"):
            yield line


def explained(said: str) -> str:
    """Say in one line what went wrong and what to do next."""
    if re.search("No space left|Disk quota exceeded", said):
        return "no space is left on the disk: free 2 GB (or set TMPDIR to a larger disk), then run make again"
    if any(words in said for words in NO_INDEX):
        return "no package index could be reached: check the network, or name one in PIP_INDEX_URL; then run make again"
    errors = [line.strip() for line in said.splitlines() if "error" in line.lower()] or said.strip().splitlines()[-1:]
    return f"packages cannot be installed: {errors[0] if errors else 'pip said nothing'}"


if __name__ == "__main__":
    main(sys.argv[1])
