import subprocess
import sys


def test_a_process_that_serves_carries_no_library_that_only_others_need():
    heavy = ("sklearn", "scipy", "joblib", "pandas", "matplotlib", "plotly", "lightgbm", "alembic")
    code = f"import sys, app.main; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
