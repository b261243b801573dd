"""The reader of the values of ``dtype`` and ``out_dtype``."""

from __future__ import annotations

import re

from resumerge.recipe.invalid import InvalidValue, describe
from resumerge.recipe.spelling import closest
from resumerge.recipe.types import QUANTISED

DTYPES = ("float16", "bfloat16", "float32", "float64")
"""The names that mergekit 0.1.5 accepts (observed); the prefix ``torch.`` is allowed, too."""

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


OF_GGUF = ("q8_0", "q4_0")
"""The quantised types of GGUF that an output can have."""


def read_dtype(value: object) -> str | None:
    """Return a dtype's name without the prefix ``torch.``; None for null and for empty text.

    mergekit reads these two as None, too.

    Raises:
        InvalidValue: the name is not in `DTYPES`.
    """
    if value is None or value == "":
        return None
    name = value.removeprefix("torch.") if isinstance(value, str) else ""
    if name in DTYPES:
        return name
    bits = re.findall("[0-9]+", name)  # float8 does not count as a misspelling of float64
    if value in QUANTISED:
        raise InvalidValue(
            "This is a dtype of the output alone",
            expected=", ".join(DTYPES),
            found=describe(value),
            fix=f"Write 'out_dtype: {value}', and delete this line, or name a dtype of floats "
            "here: 'dtype' is what models are rounded to before they are merged",
        )
    candidates = [dtype for dtype in DTYPES if not bits or re.findall("[0-9]+", dtype) == bits]
    similar_name = _OTHER_NAMES.get(name.lower()) or closest(name, candidates)
    raise InvalidValue(
        "Unknown dtype",
        expected=", ".join(DTYPES),
        found=describe(value),
        fix=f"Write '{similar_name}'"
        if similar_name
        else "Write one of these names, or delete the line",
    )


def read_out_dtype(value: object) -> str | None:
    """Return the dtype of the output, or its quantisation.

    The result is one of `QUANTISED`, one of `OF_GGUF` (from any case), or a result of `read_dtype`.

    Raises:
        InvalidValue: the value is none of these names.
    """
    if isinstance(value, str) and (value in QUANTISED or value.lower() in OF_GGUF):
        return value if value in QUANTISED else value.lower()
    try:
        return read_dtype(value)
    except InvalidValue as error:
        error.expected += f", {', '.join(QUANTISED)}"
        error.expected += f"; for an output in GGUF also {', '.join(OF_GGUF)}"
        similar_name = closest(value, QUANTISED) if isinstance(value, str) else None
        error.fix = f"Write '{similar_name}'" if similar_name else error.fix
        raise
