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


def test_no_network_for_packages_is_said_in_one_line(tmp_path):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
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
    assert f"installing {INSTALL['pinned']('runtime')} packages" in refused.stdout


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


def test_packages_are_counted_through_the_files_that_a_file_refers_to():
    assert INSTALL["pinned"]("dev") > INSTALL["pinned"]("runtime") > 30
