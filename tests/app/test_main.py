import subprocess
import sys


def test_a_process_that_serves_carries_no_library_that_only_training_needs():
    heavy = ("sklearn", "scipy", "joblib", "pandas", "matplotlib", "plotly", "lightgbm")
    code = f"import sys, app.main, app.commands.serve; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
