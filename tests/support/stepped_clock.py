"""Run Flowcast with a wall clock that is shifted by the seconds in a file, also while it runs.

``python -m tests.support.stepped_clock FILE serve …``. The monotonic clock is not shifted, as when somebody sets a
machine's clock.
"""

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine


def follow(file: Path) -> None:
    """Shift the clock by the seconds in a file, again after each change."""
    set_by, travel = 0.0, None
    while True:
        wanted = float(file.read_text() or 0)
        if wanted != set_by:
            if travel is not None:
                travel.stop()
            travel = time_machine.travel(datetime.now(UTC) + timedelta(seconds=wanted), tick=True)
            travel.start()
            set_by = wanted
        time.sleep(0.1)


if __name__ == "__main__":
    place = Path(sys.argv.pop(1))
    threading.Thread(target=follow, args=(place,), daemon=True).start()
    sys.argv[0] = "flowcast"
    from app.cli import main

    main()
