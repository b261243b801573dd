"""Chooses the output's chat template: the models' most common one, a built-in, or the recipe's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jinja2 import Environment, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser

from resumerge.errors import Problem
from resumerge.recipe import Recipe
from resumerge.recipe.spelling import did_you_mean

_CHATML = """\
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""
_LLAMA3 = """\
{{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\\n\\n' }}
{{- message.content | trim }}{{ '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif -%}
"""
_ALPACA = """\
{{- bos_token -}}
{%- set headings = {'user': '### Instruction:\\n', 'assistant': '### Response:\\n'} -%}
{%- for message in messages -%}
{{ headings.get(message.role, '') ~ message.content | trim }}
{{- eos_token if message.role == 'assistant' else '\\n\\n' }}
{%- if message.role == 'assistant' and not loop.last -%}{{ '\\n\\n' }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ headings.assistant }}{%- endif -%}
"""
_MISTRAL = """\
{{- bos_token -}}
{%- set opening, turns = '', messages -%}
{%- if messages and messages[0].role == 'system' -%}
{%- set opening, turns = messages[0].content ~ '\\n\\n', messages[1:] -%}
{%- endif -%}
{%- for turn in turns -%}
{%- set expected = ('user', 'assistant')[loop.index0 % 2] -%}
{%- if turn.role != expected -%}
{{ raise_exception('a message of the ' ~ expected ~ ' was expected, not of: ' ~ turn.role) }}
{%- elif turn.role == 'user' -%}
{{ ' [INST] ' ~ (opening if loop.first else '') ~ turn.content ~ ' [/INST]' }}
{%- else -%}
{{ ' ' ~ turn.content ~ eos_token }}
{%- endif -%}
{%- endfor -%}
"""
_EXAONE = """\
{%- if messages and messages[0].role != 'system' -%}
{{ '[|system|][|endofturn|]\\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '[|' ~ message.role ~ '|]' ~ message.content }}
{{- '\\n' if message.role == 'user' else '[|endofturn|]\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '[|assistant|]' }}{%- endif -%}
"""

BUILT_IN = {
    "alpaca": _ALPACA,
    "chatml": _CHATML,
    "exaone": _EXAONE,
    "llama3": _LLAMA3,
    "mistral": _MISTRAL,
}
"""The built-in chat templates in Jinja, by name.

Each template renders the prompts of published models: Llama-3-8B-Instruct,
Mistral-7B-Instruct-v0.2, EXAONE-3.5-7.8B-Instruct, OpenHermes-2.5 (ChatML) and Stanford Alpaca.
docs/coming-from-mergekit.md shows the templates.
"""


def choose_template(
    recipe: Recipe, templates: Iterable[str | None]
) -> tuple[str | None, list[Problem], list[str]]:
    """Choose the chat template of the output.

    Args:
        recipe: the recipe, with its ``chat_template``.
        templates: the models' templates, the reference's first. ``auto`` chooses the most common
            one; if several are equally common, the first of them. Other settings ignore them.

    Returns:
        (the template, or None to keep the tokenizer's; problems; notes).
    """
    setting = recipe.chat_template
    if setting is None:
        return None, [], []
    if setting == "auto":
        template_counts = Counter(template for template in templates if template)
        if not template_counts:
            return None, [], ["no model has a chat template, so the output has none"]
        return max(template_counts, key=template_counts.__getitem__), [], []
    if setting in BUILT_IN:
        return BUILT_IN[setting], [], []
    if "{{" not in setting and "{%" not in setting:
        fix = did_you_mean(setting, [*BUILT_IN, "auto"])
        return (
            None,
            [
                recipe.problem(
                    f"Unknown chat template {setting.strip()!r}",
                    "chat_template",
                    expected=f"auto, one of {', '.join(BUILT_IN)}, or a Jinja template",
                    found=setting.strip()[:60],
                    fix=fix or "Write one of these names, or a template with {{ … }}",
                )
            ],
            [],
        )
    syntax_message = syntax_error(setting)
    if syntax_message is None:
        return setting, [], []
    problem = recipe.problem(
        "The chat template is not valid Jinja",
        "chat_template",
        expected="a template that transformers can render",
        found=syntax_message,
        fix="Correct it, or write the name of a built-in template",
    )
    return None, [problem], []


class _Generation(Extension):
    """The block ``{% generation %}``, which marks the assistant's text for transformers."""

    tags = {"generation"}  # noqa: RUF012, so Jinja declares it

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def syntax_error(template: str) -> str | None:
    """Return the error that Jinja reports for a chat template; None for a valid template."""
    try:
        Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(template)
    except TemplateSyntaxError as error:
        return f"{error.message} (line {error.lineno} of the template)"
    except (RecursionError, ValueError) as error:  # deeply nested; a number of 5,000 digits
        return str(error)
    return None
