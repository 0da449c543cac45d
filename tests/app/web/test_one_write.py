"""Answers leave in one write, over real connections."""

import asyncio

import pytest

from app.web.one_write import OneWrite

pytestmark = pytest.mark.journey


class Answering(asyncio.Protocol):
    """Does what it was made with when something comes, and notes each write that reaches the kernel's door."""

    def __init__(self, answer, writes):
        self._answer, self._writes = answer, writes

    def connection_made(self, transport):
        class Noting:
            def __getattr__(_, name):
                return getattr(transport, name)

            def write(_, data):
                self._writes.append(bytes(data))
                transport.write(data)

            def writelines(_, parts):
                self._writes.append(b"".join(parts))
                transport.writelines(parts)

        self._transport = OneWrite(Noting(), asyncio.get_running_loop())

    def data_received(self, data):
        self._answer(self._transport)


def asked(answer) -> tuple[bytes, list[bytes]]:
    """Give what a client reads until the connection is closed, and the writes that it came in."""
    writes: list[bytes] = []

    async def ask() -> bytes:
        server = await asyncio.get_running_loop().create_server(lambda: Answering(answer, writes), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"?")
            try:
                came = await asyncio.wait_for(reader.read(), 10)
            except ConnectionResetError:
                came = b""
            writer.close()
            return came

    return asyncio.run(ask()), writes


def test_head_and_body_leave_together():
    def answer(transport):
        transport.write(b"head,")
        transport.write(b"body")
        transport.close()

    assert asked(answer) == (b"head,body", [b"head,body"])


def test_a_head_whose_body_is_not_there_yet_leaves_in_the_next_turn():
    def answer(transport):
        transport.write(b"head,")
        assert transport.get_write_buffer_size() == 5
        asyncio.get_running_loop().call_later(0.05, lambda: (transport.write(b"body"), transport.close()))

    assert asked(answer) == (b"head,body", [b"head,", b"body"])


def test_what_is_kept_leaves_before_the_connection_is_closed():
    def answer(transport):
        transport.write(b"head")
        transport.close()

    assert asked(answer) == (b"head", [b"head"])


def test_what_is_kept_does_not_outlive_an_abort():
    def answer(transport):
        transport.write(b"head")
        transport.abort()

    came, writes = asked(answer)
    assert (came, writes) == (b"", [])


@pytest.mark.parametrize("parts", [[b"", b"a"], [b"a", b""], [b"a", b"b", b"c", b"d"]])
def test_all_is_sent_once_and_in_order(parts):
    def answer(transport):
        for part in parts:
            transport.write(part)
        transport.close()

    came, writes = asked(answer)
    assert came == b"".join(parts) == b"".join(writes)
