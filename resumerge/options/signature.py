"""The signature and documentation of Python functions with options, made from the declarations."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from resumerge.options.declaration import Option
from resumerge.options.in_python import in_python
from resumerge.options.options import declared

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def with_options(
    command: str,
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Return a decorator that documents the declared options of a command in a function.

    The function accepts the options as ``**options``, its last parameter. The decorator replaces
    this parameter in the signature by one keyword parameter for each option, and the line
    ``OPTIONS`` under `Args:` in the docstring by the texts of the options.
    """

    def documented(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        options, signature = declared(command), inspect.signature(function, eval_str=True)
        parameters = list(signature.parameters.values())[:-1]  # without **options, the last
        positional_parameters = [
            parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY
        ]
        keyword_only = [
            parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        ]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*positional_parameters, *map(_parameter, options), *keyword_only]
        )
        option_lines = "\n".join(map(_documentation, options))
        function.__doc__ = inspect.cleandoc(function.__doc__ or "").replace(
            "    OPTIONS", option_lines
        )
        return function

    return documented


def _parameter(option: Option) -> inspect.Parameter:
    accepted_type = (
        option.type.accepts if option.default is not None else option.type.accepts | None
    )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=option.default,
        annotation=accepted_type,
    )


def _documentation(option: Option) -> str:
    default = f"Default: {option.shown_default}." if option.shown_default else ""
    text = " ".join(
        filter(None, (f"{option.name}: {in_python(option.help)}", option.type.note, default))
    )
    return textwrap.fill(text, 96, initial_indent="    ", subsequent_indent="        ")
