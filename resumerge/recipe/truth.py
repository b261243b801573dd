"""Values that are true or false, also where they are written as text."""

from __future__ import annotations

_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}


def truth(value: object) -> bool | None:
    """What a YAML value says, like mergekit 0.1.5 (observed): None where it is neither.

    These are true and false, 1 and 0, and as text also yes, no, on, off, and their initials.
    """
    if isinstance(value, str):
        return _WORDS.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None
