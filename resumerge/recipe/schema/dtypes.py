"""The dtype names of a recipe."""

from __future__ import annotations

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.spelling import closest

DTYPES = ("float16", "bfloat16", "float32", "float64")
"""What mergekit 0.1.5 accepts (observed), each also with ``torch.`` before it."""

_OTHER_NAMES = {
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "brain": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "single": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
}


def read_dtype(value: object) -> str | None:
    """A dtype's name without ``torch.``; None for null and for empty text, as in mergekit.

    Raises:
        Unfit: another name.
    """
    if value is None or value == "":
        return None
    name = value.removeprefix("torch.") if isinstance(value, str) else ""
    if name in DTYPES:
        return name
    meant = _OTHER_NAMES.get(name.lower()) or closest(name.lower(), DTYPES)
    raise InvalidValue(
        "This dtype is not known",
        expected=", ".join(DTYPES),
        found=describe(value),
        fix=f"Write '{meant}'" if meant else "Write one of these, or delete the line",
    )
