"""Changes of bytes."""

from __future__ import annotations

from random import Random

_NUMBERS = (0, 1, 0x7F, 0xFF, 2**16, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
_PIECES = (b"\0", b"\xff", b"\0" * 64, b"\xff" * 64, b"\xef\xbb\xbf", b"\xed\xa0\x80", b"[{", b",")


def changed_bytes(draw: Random, data: bytes) -> bytes:
    """Return bytes with one to three changes."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        data = _changed_once(draw, data)
    return data


def _changed_once(draw: Random, data: bytes) -> bytes:
    head = 64 if draw.random() < 0.4 else len(data)
    at = draw.randrange(min(head, len(data)) + 1)
    size = draw.choice((1, 2, 4, 8, 64, 512))
    match draw.randrange(8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + size :]
        case 2:
            return data[:at] + draw.choice(_PIECES) + data[at:]
        case 3:
            start = draw.randrange(len(data) + 1)
            return data[:at] + data[start : start + size] + data[at:]
        case 4:
            width = draw.choice((1, 2, 4, 8))
            number = draw.choice(_NUMBERS) % (1 << 8 * width)
            written = number.to_bytes(width, "little" if draw.random() < 0.5 else "big")
            return data[:at] + written + data[at + width :]
        case 5:
            return data[:at] + draw.randbytes(size) + data[at + size :]
        case 6:
            return data + draw.choice(_PIECES) * draw.choice((1, 1000))
    flipped = bytearray(data)
    for _ in range(draw.choice((1, 8)) if data else 0):
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(flipped)
