"""Adapters with a new head, which turn a language model into a classifier."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from resumerge.config_json import class_names
from resumerge.sources.adapter_programs.config import LoraConfig
from resumerge.tensors import Tensor

HEADS = ("classifier", "pre_classifier", "classification_head", "qa_outputs", "score")
"""transformers' names of the heads of classifiers. Most models have one of ``classifier`` and
``score``, which peft saves whole by default."""

_CLASSES = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
"""The endings of the names of transformers' classes, by peft's ``task_type``."""

_CLASS_ENDS = re.compile(r"(For[A-Z]\w*|LMHeadModel|DoubleHeadsModel|Model)$")
_LANGUAGE_HEAD = re.compile(
    r"(^|\.)(lm_head|embed_out|cls|vocab_(transform|layer_norm|projector)|lm_loss|pred_layer"
    r"|generator_\w+|discriminator_\w+|predictions)\."
)


def is_language_head(name: str) -> bool:
    """Return whether a tensor belongs to a language model's head, by its name."""
    return bool(_LANGUAGE_HEAD.search(name))


def is_of_new_head(name: str, settings: LoraConfig) -> bool:
    """Return whether a tensor belongs to the head that an adapter's task adds to its model."""
    entries = (*settings.modules_to_save, *HEADS)
    return settings.task in _CLASSES and any(f".{entry}." in f".{name}" for entry in entries)


def classifier(
    config: Mapping[str, Any], settings: LoraConfig, added: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return the config of the classifier that an adapter turns a model into.

    Args:
        config: the model's config.json.
        settings: the adapter's settings, from its config; the defaults if it has none.
        added: the tensors of the adapter's new head, by name.
    """
    class_ending = _CLASSES[settings.task or ""]
    classifier_config = dict(config)
    classifier_config["architectures"] = [
        _CLASS_ENDS.sub("", name) + class_ending for name in class_names(config)
    ]
    label_count = _labels(added)
    if settings.task != "QUESTION_ANS" and label_count:
        old_labels = config.get("id2label")
        if not isinstance(old_labels, Mapping) or len(old_labels) != label_count:
            classifier_config["id2label"] = {
                str(number): f"LABEL_{number}" for number in range(label_count)
            }
            classifier_config["label2id"] = {
                f"LABEL_{number}": number for number in range(label_count)
            }
        classifier_config.pop("num_labels", None)
    return classifier_config


def _labels(added: Mapping[str, Tensor]) -> int | None:
    """Return the number of labels, which is the number of rows of a head's last weight.

    None if the head has no weight of two dimensions.
    """
    weights = [tensor for tensor in added.values() if len(tensor.shape) == 2]
    output_weights = [
        tensor for tensor in weights if re.search(r"(out_proj|o_proj)\.weight$", tensor.name)
    ]
    row_counts = [tensor.shape[0] for tensor in output_weights or weights]
    return min(row_counts, default=None)
