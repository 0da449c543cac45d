"""Work in a thread for the length of a block."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class Background(ABC):
    """Runs ``run`` in a thread while entered; ``over`` is set at the end of the block, and ends the loop in it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)

    @abstractmethod
    def run(self) -> None:
        """Work until ``over`` is set; its ``wait`` paces the loop."""

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
