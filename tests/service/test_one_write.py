"""What is written in one turn of the loop is sent in one piece, and nothing is lost at the end."""

import asyncio

from spanmq.service.transport import OneWrite


class Wire:
    """What a transport was told, in order."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("close")

    def is_closing(self) -> bool:
        return "close" in self.told


def test_head_and_body_are_one_write() -> None:
    async def answer() -> list[bytes | str]:
        wire = Wire()
        transport = OneWrite(wire, asyncio.get_running_loop())
        transport.write(b"head ")
        transport.write(b"body")
        await asyncio.sleep(0)
        transport.write(b"next")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return wire.told

    assert asyncio.run(answer()) == [b"head body", b"next"]


def test_what_is_held_is_sent_before_the_end() -> None:
    async def answer() -> list[bytes | str]:
        wire = Wire()
        transport = OneWrite(wire, asyncio.get_running_loop())
        transport.write(b"last")
        transport.close()
        assert transport.is_closing()
        await asyncio.sleep(0)
        return wire.told

    assert asyncio.run(answer()) == [b"last", "close"]
