"""LoRA adapters, of whatever program: the tensors of a model as an adapter changes them.

`lora` makes a model with an adapter a source like any other, from headers alone. The adapter's
settings, and its tensors with PEFT's names, come from the program that wrote it
(`sources/adapter_programs/`). Then, in this order, `adapter_names` parses these names,
`model_names` finds the model's tensor, whichever program spells its name, and `pairing` assigns
each tensor of the adapter to the tensor that it changes. `changed` makes the changed weight of a
module (`orientation`: which axis counts outputs), `experts` those of experts, and `tokens` rows of
single tokens. `weight_tying` keeps tied tensors equal. `heads` is about classifiers, `vocabulary`
about tensors that grow with new tokens, `completeness` about tensors that the config promises, and
`refusals` about problems. A changed weight is a `resumerge.tensors.Adapted`. May import
`sources/formats/`, but not `sources/remote/`.
"""
