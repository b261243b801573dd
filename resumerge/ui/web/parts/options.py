"""The fields for the options of a merge, made from the declarations of the options."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

import gradio as gr

from resumerge.options import Option
from resumerge.options.types import Choice, Flag

Field: TypeAlias = gr.components.Component


def option_fields(declarations: Sequence[Option]) -> list[Field]:
    """Build the fields of options under the headings of their groups.

    An empty field, or an unchecked box, sets no option.

    Args:
        declarations: the options to build a field for; the groups have the order of their first
            options.

    Returns:
        The fields, in the order of the declarations.
    """
    field_by_name: dict[str, Field] = {}
    sorted_options = sorted(
        declarations, key=lambda option: _order(declarations).index(option.group)
    )
    for group_name, options in groupby(sorted_options, lambda option: option.group):
        gr.Markdown(f"#### {group_name}")
        field_by_name |= {option.name: _field(option) for option in options}
    return [field_by_name[option.name] for option in declarations]


def _order(declarations: Sequence[Option]) -> list[str]:
    return [*dict.fromkeys(option.group for option in declarations)]


def _field(option: Option) -> Any:
    label = option.name.replace("_", " ").capitalize()
    info = " ".join(filter(None, (option.help, option.type.note)))
    default = f"default: {option.shown_default}" if option.shown_default else option.type.metavar
    if isinstance(option.type, Flag):
        return gr.Checkbox(label=label, info=info, value=False)
    if isinstance(option.type, Choice):
        choices = [(default, ""), *((word, word) for word in option.type.words)]
        return gr.Dropdown(choices, value="", label=label, info=info)
    return gr.Textbox(label=label, info=info, placeholder=default)
