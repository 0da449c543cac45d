"""Receivers, and a service that may push to them."""

from collections.abc import Callable, Iterator

import pytest

from app.settings import Settings
from tests.app.events.receiver import Receiver


@pytest.fixture
def open_receiver() -> Iterator[Callable[..., Receiver]]:
    opened: list[Receiver] = []

    def open_one(*statuses: int, delay: float = 0.0) -> Receiver:
        opened.append(Receiver(*statuses, delay=delay))
        return opened[-1]

    yield open_one
    for receiver in opened:
        receiver.close()


@pytest.fixture
def receiver(open_receiver: Callable[..., Receiver]) -> Receiver:
    return open_receiver()


@pytest.fixture
def settings(settings: Settings, receiver: Receiver) -> Settings:
    """Settings that allow the receiver."""
    return settings.model_copy(update={"webhook_hosts": f"{receiver.host}, hooks.example"})
