"""LoRA adapters of any program: the tensors of a model as an adapter changes them.

`lora` combines a model and an adapter into one `Source`, from headers alone. The program that wrote
the adapter (`sources/adapter_programs/`) returns its settings, and its tensors under PEFT's names.
`adapter_names` parses these names. `model_names` finds the model's tensor by any program's name for
it. `pairing` assigns each tensor of the adapter to the tensor that it changes, and `uses` records
the assignments.

`module_changes` makes the changed weight of a module, and `expert_changes` the weights of experts,
which `experts` describes. `replacements` puts whole tensors in place of the model's. `orientation`
decides which axis of a weight counts outputs. `weight_tying` keeps tied tensors equal. `heads`
handles classifiers, `vocabulary` rows of single tokens and tensors that grow with new tokens, and
`completeness` tensors that the config promises. `refusals` collects problems.

A changed weight is a `resumerge.tensors.Adapted`. May import `sources/formats/`, but not
`sources/remote/`.
"""
