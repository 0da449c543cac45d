"""``make setup``: what goes wrong with packages is said in one line."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INSTALL = runpy.run_path(str(ROOT / "requirements" / "install.py"), run_name="install")


@pytest.mark.journey
def test_no_network_for_packages_is_said_in_one_line(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)  # whichever pip is the first to fail, it is for want of an index
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    refused = subprocess.run(
        [sys.executable, tmp_path / "requirements" / "install.py", "runtime"],
        env=os.environ | nowhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "make: no package index could be reached: check the network, or name one in PIP_INDEX_URL; then run make again"
    ]
    assert refused.stdout.splitlines()[:1] == ["making the environment .venv"]
    assert f"installing {len(INSTALL['pinned']('runtime'))} packages" in refused.stdout


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ERROR: Could not install packages: [Errno 28] No space left on device\n",
            "no space is left",
        ),
        ("WARNING: Retrying (…) after connection broken by 'NewConnectionError(…)': /simple/x/\n", "no package index"),
        (
            "Collecting numpy\nERROR: No matching distribution found for numpy==99 (from versions: 1.0, 2.0)\nhint\n",
            "packages cannot be installed: ERROR: No matching distribution found for numpy==99",
        ),
        ("", "packages cannot be installed: pip said nothing"),
    ],
)
def test_what_pip_says_is_explained_in_one_line(said, told):
    explained = INSTALL["explained"](said)
    assert explained.startswith(told)
    assert "\n" not in explained


def test_packages_are_listed_once_through_the_files_that_a_file_refers_to():
    runtime, dev = INSTALL["pinned"]("runtime"), INSTALL["pinned"]("dev")
    assert len(runtime) > 30
    assert set(runtime) < set(dev)
    assert len(set(dev)) == len(dev)


@pytest.mark.parametrize("which", ["runtime", "dev"])
@pytest.mark.parametrize("n", [1, 3, 500])
def test_every_package_is_installed_by_one_process_and_large_ones_by_different_ones(which, n):
    packages = INSTALL["pinned"](which)
    shares = INSTALL["shares"](packages, n)
    assert sorted(package for share in shares for package in share) == sorted(packages)
    assert len(shares) == min(n, len(packages))
    assert all(shares)
    large = [[package for package in share if package.split("==")[0] in INSTALL["LARGE"]] for share in shares]
    assert max(map(len, large)) - min(map(len, large)) <= 1


def test_all_large_packages_are_pinned():
    assert set(INSTALL["LARGE"]) <= {package.split("==")[0] for package in INSTALL["pinned"]("dev")}


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Let a shell script be the environment's Python."""
    script = tmp_path / "python"
    script.touch(mode=0o700)
    monkeypatch.setitem(INSTALL["install"].__globals__, "PYTHON", script)
    return script


@pytest.mark.journey
def test_when_one_of_several_pips_fails_the_others_are_stopped_and_its_reason_is_told(python, tmp_path, capsys):
    started = tmp_path / "started"
    python.write_text(f"""#!/bin/sh
case "$*" in
*works*) echo Collecting works; echo $$ >{started}; exec sleep 60;;
esac
while ! [ -s {started} ]; do sleep 0.05; done
echo "Collecting fails"
echo "ERROR: No matching distribution found for fails==9"
exit 1
""")
    with pytest.raises(SystemExit) as refused:
        INSTALL["install"]([["works==1"], ["fails==9"]], INSTALL["Progress"](2))
    assert refused.value.code == (
        "make: packages cannot be installed: ERROR: No matching distribution found for fails==9"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
    assert capsys.readouterr().out.splitlines()[0] == "installing 2 packages"


@pytest.mark.journey
def test_packages_that_do_not_go_together_are_told(python):
    python.write_text("#!/bin/sh\necho a 1 has requirement b==2, but you have b 3.\nexit 1\n")
    with pytest.raises(SystemExit, match=r"^make: packages do not go together: a 1 has requirement b==2, but"):
        INSTALL["check"]()
    python.write_text("#!/bin/sh\necho No broken requirements found.\n")
    INSTALL["check"]()


def test_the_last_line_comes_again_before_five_silent_seconds(capsys):
    now = [0.0]
    progress = INSTALL["Progress"](3, clock=lambda: now[0])
    progress.repeat()  # nothing is under way yet
    progress.say("making the environment .venv")
    progress.repeat()
    now[0] += 5
    progress.repeat()
    progress.found()
    now[0] += 5
    progress.repeat()
    progress.end()
    now[0] += 5
    progress.repeat()
    assert capsys.readouterr().out.splitlines() == [
        "making the environment .venv",
        "making the environment .venv (5 s)",
        "fetching packages: 1 of 3 (10 s)",
    ]
