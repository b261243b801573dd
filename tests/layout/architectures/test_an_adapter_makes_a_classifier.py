"""The adapter of a classifier on a language model: the output is that classifier, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from merging import merge, tensors_of, working_in
from peft import LoraConfig, PeftModel, get_peft_model
from zoo import ARCHITECTURES

from resumerge.documents.plan_report import describe_plan
from resumerge.options import Options

COPY = "merge_method: passthrough\nmodels: [{model: base+adapter}]\n"
TARGETS = ["q_proj", "query", "c_attn", "down_proj"]
CLASSIFIERS: dict[str, tuple[str, str, int]] = {
    "llama": ("LlamaForSequenceClassification", "SEQ_CLS", 3),
    "gpt2": ("GPT2ForSequenceClassification", "SEQ_CLS", 2),
    "qwen2": ("Qwen2ForTokenClassification", "TOKEN_CLS", 5),
    "bert": ("BertForTokenClassification", "TOKEN_CLS", 4),
    "roberta": ("RobertaForSequenceClassification", "SEQ_CLS", 3),
    "mistral": ("MistralForQuestionAnswering", "QUESTION_ANS", 2),
}


def write(folder: Path, name: str) -> Any:
    """Write a language model and a classifier's adapter; return the logits that peft computes."""
    model, task, labels = CLASSIFIERS[name]
    base = ARCHITECTURES[name].build(seed=0)
    base.config.pad_token_id = 0
    base.save_pretrained(folder / "base")
    torch.manual_seed(1)
    classifier = getattr(transformers, model)
    options = LoraConfig(r=2, target_modules=TARGETS, init_lora_weights=False, task_type=task)
    made = classifier.from_pretrained(folder / "base", num_labels=labels)
    get_peft_model(made, options).save_pretrained(folder / "adapter")
    made = classifier.from_pretrained(folder / "base", num_labels=labels)
    return outputs(PeftModel.from_pretrained(made, folder / "adapter"), name)


def outputs(model: Any, name: str) -> torch.Tensor:
    with torch.no_grad():
        found = model.eval()(input_ids=ARCHITECTURES[name].feed["input_ids"])
    return found.logits if hasattr(found, "logits") else found.start_logits


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_output_is_the_classifier(name: str, tmp_path: Path) -> None:
    theirs = write(tmp_path, name)
    out = merge(tmp_path, COPY, tmp_path / "out")
    model, task, labels = CLASSIFIERS[name]
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == [model]
    assert task == "QUESTION_ANS" or len(config["id2label"]) == labels
    assert not any(key.startswith(("lm_head.", "cls.")) for key in tensors_of(out))
    found = outputs(getattr(transformers, model).from_pretrained(out), name)
    torch.testing.assert_close(found, theirs, rtol=0, atol=1e-4)


def test_it_is_told_what_the_output_has_instead(tmp_path: Path) -> None:
    write(tmp_path, "llama")
    (tmp_path / "recipe.yaml").write_text(COPY)
    with working_in(tmp_path):
        described = describe_plan(tmp_path / "recipe.yaml", None, Options())
    [note] = [note for note in described["notes"] if "classifier" in note]
    assert "score.weight, and not lm_head.weight" in note
