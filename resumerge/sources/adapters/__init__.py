"""LoRA adapters, of whatever program: the tensors of a model as an adapter changes them.

`lora` makes a model with an adapter a source like any other, from headers alone. What it asks, in
order: `config` reads adapter_config.json, `adapter_names` parses the names of the adapter's
tensors, `model_names` finds the model's tensor, whichever program spells its name, and `pairing`
gives each tensor of the adapter its one use. `programs` has what other programs than PEFT write. A
module is changed by `changed` (`orientation`: which axis counts outputs), experts by `experts`,
rows of single tokens by `tokens`, and `weight_tying` keeps tied tensors equal. `heads` has
classifiers, `vocabulary` what grows with new tokens, `completeness` what the config promises,
`refusals` the problems. `resumerge.tensors.Adapted` is what comes out. May import
`sources/formats/`, but not `sources/remote/`.
"""
