"""Moves the per-layer settings of config.json to the layers that slices choose.

Lists in config.json are cut and joined. Settings that config.json leaves to the model class are
derived by the rules of the class (`layer_rules`). They are written to config.json if the class
would derive other values for the layers of the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resumerge.layout.layer_lists import read_layer_list, write_layer_list
from resumerge.layout.layer_rules import LayerNumber, Rule, rules_of

Config = Mapping[str, Any]

_MOST_LAYERS = 1 << 16
"""The largest valid number of layers in a model's config. A larger number is ignored."""
_LAST_STAGE = ("stage_names", "out_features", "out_indices")
_OUTPUTS = ("deepstack", "feature_layer", "hidden_state_indices", "layers_indices", "hook_ids")
"""Words in the keys of lists of layers whose outputs are read by other parts of the model."""


@dataclass(frozen=True)
class SourceLayer:
    """One layer of a model.

    Args:
        model: the number of the model's source.
        config: the whole config.json of the model.
        layer: the layer's number in the model.
    """

    model: int
    config: Config
    layer: int


@dataclass(frozen=True)
class Unstated:
    """A per-layer setting that config.json cannot state for the layers of the output.

    Args:
        key: the setting's key in config.json, or the name of its rule.
        keys: the keys from which the setting is derived.
        found: the values of these keys in the reference's config.json, as text.
        place: the first layer of the output that would not get the setting of its source layer.
    """

    key: str
    keys: tuple[str, ...]
    found: str
    place: int


def section_at(config: Any, path: Sequence[str]) -> Config:
    """Return the (nested) mapping at a path in a config.json; empty if there is none."""
    for step in path:
        config = config.get(step) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}


def layer_entries(config: Config, path: Sequence[str], count: int) -> dict[str, list[Any]]:
    """Return every per-layer setting that a section of config.json states or implies.

    Args:
        config: the whole config.json of a model, not only the section.
        path: the keys that lead to the section with the layer count.
        count: the number of layers that the section counts.
    """
    section = section_at(config, path)
    stated_entries = {
        key: entries
        for key, value in section.items()
        if (entries := read_layer_list(key, value, count)) is not None
    }
    derived_entries = {
        rule.name: entries
        for rule in rules_of(section, config, path)
        if (entries := rule.entries(section, count)) is not None
    }
    return stated_entries | derived_entries


def move_settings(
    config: Config, keys: Sequence[str], count: int, origins: Sequence[SourceLayer]
) -> tuple[dict[tuple[str, ...], dict[str, Any]], list[Unstated]]:
    """Return config.json's per-layer settings for an output whose layers were chosen by slices.

    Args:
        config: the reference model's config.json.
        keys: the dotted keys of `config` that count the layers.
        count: the number of layers of the reference.
        origins: the source layer of each layer of the output.

    Returns:
        The sections of config.json that count the layers, by the keys that lead to them; and the
        settings that the sections cannot state.
    """
    sections: dict[tuple[str, ...], dict[str, Any]] = {}
    unstated_settings: list[Unstated] = []
    for key in keys:
        *section_path, counting_key = key.split(".")
        if tuple(section_path) not in sections:
            sections[tuple(section_path)], unstated_in_section = _moved_section(
                config, section_path, counting_key, count, origins
            )
            unstated_settings += unstated_in_section
        if type(section_at(config, section_path).get(counting_key)) is int:
            sections[tuple(section_path)][counting_key] = len(origins)
    return sections, unstated_settings


def mixed_settings(
    config: Config, keys: Sequence[str], count: int, inputs: Sequence[Sequence[SourceLayer]]
) -> dict[str, list[int]]:
    """Return the output's layers that are merged from layers with different settings.

    Args:
        config: the reference model's config.json.
        keys: the dotted keys of `config` that count the layers.
        count: the number of layers of the reference.
        inputs: the layers that each layer of the output is merged from.

    Returns:
        The numbers of these layers in the output, by the name of the setting.
    """
    mixed_places: dict[str, list[int]] = {}
    for path, counting_key in {
        tuple(path): last_key for *path, last_key in (key.split(".") for key in keys)
    }.items():
        stated_settings = _StatedSettings(path, counting_key, count)
        for key, default in layer_entries(config, path, count).items():
            entries_of_layers = (
                stated_settings.of_origins(key, default, layers) for layers in inputs
            )
            differing_places = [
                place
                for place, (entries, layers) in enumerate(zip(entries_of_layers, inputs))
                if any(
                    _comparable_entry(entry, layer) != _comparable_entry(entries[0], layers[0])
                    for entry, layer in zip(entries, layers)
                )
            ]
            if differing_places:
                mixed_places[key] = differing_places
    return mixed_places


def _comparable_entry(entry: Any, layer: SourceLayer) -> Any:
    """Return an entry for comparison: the distance if the entry is another layer's number."""
    return entry - layer.layer if isinstance(entry, LayerNumber) else entry


def _moved_section(
    config: Config, path: list[str], counting_key: str, count: int, origins: Sequence[SourceLayer]
) -> tuple[dict[str, Any], list[Unstated]]:
    """Return a section with the output's per-layer settings, and the settings it cannot state."""
    before = section_at(config, path)
    section, unstated = dict(before), list[Unstated]()
    stated_settings = _StatedSettings(path, counting_key, count)
    entries_of_rules = {
        rule: entries
        for rule in rules_of(before, config, path)
        if (entries := rule.entries(before, count)) is not None
    }
    entries_by_name = {rule.name: entries for rule, entries in entries_of_rules.items()}
    unstated += _move_lists(before, section, stated_settings, entries_by_name, origins)
    unstated += _move_last_stage(before, section, count, len(origins))
    expected_entries = {
        rule: stated_settings.of_origins(rule.name, entries_before, origins)
        for rule, entries_before in entries_of_rules.items()
    }
    for rule, entries in expected_entries.items():
        _write_if_needed(rule, entries, section, count, origins)
    for rule, entries in expected_entries.items():
        place = _first_difference(rule, section, entries, origins)
        if place is not None:
            stated_values = [f"{key}: {before[key]}" for key in rule.keys if key in before]
            unstated.append(Unstated(rule.name, rule.keys, ", ".join(stated_values), place))
    return section, unstated


def _move_lists(
    before: Config,
    section: dict[str, Any],
    stated_settings: _StatedSettings,
    of_rules: Mapping[str, list[Any]],
    origins: Sequence[SourceLayer],
) -> Iterator[Unstated]:
    """Write the per-layer lists that config.json states; yield those that cannot be moved.

    Args:
        before: the section as the reference's config.json has it, which remains unchanged.
        section: the section of the output, which is changed in place.
        stated_settings: the settings that the models of the layers state.
        of_rules: the entries that rules derive, by name. If a rule derives entries that differ from
            a list, the list is left to the rule.
        origins: the source layer of each layer of the output.
    """
    for key, value in before.items():
        reference_entries = read_layer_list(key, value, stated_settings.count)
        if reference_entries is None or of_rules.get(key, reference_entries) != reference_entries:
            continue
        entries = stated_settings.of_origins(key, reference_entries, origins)
        if entries == reference_entries:
            continue
        if any(word in key for word in _OUTPUTS) and entries.count(True) != reference_entries.count(
            True
        ):
            yield Unstated(key, (key,), f"{key}: {value}", 0)
        section[key] = write_layer_list(key, value, stated_settings.count, entries)


def _write_if_needed(
    rule: Rule,
    entries: list[Any],
    section: dict[str, Any],
    count: int,
    origins: Sequence[SourceLayer],
) -> None:
    """Write a rule's entries if the class would derive others for the layers of the output.

    The entries are also written if the section still has a list for the old number of layers.
    """
    stated_value = section.get(rule.name)
    is_old = isinstance(stated_value, list) and len(stated_value) == count != len(origins)
    if is_old or _first_difference(rule, section, entries, origins) is not None:
        section |= rule.write(section, _renumbered(entries, origins))


@dataclass
class _StatedSettings:
    """The settings that the models state for their layers.

    Args:
        path: the keys that lead to the section, in the config.json of every model.
        counting_key: the key of the layer count in the section.
        count: the number of layers if this key is missing.
    """

    path: Sequence[str]
    counting_key: str
    count: int

    def of_origins(self, key: str, default: list[Any], origins: Sequence[SourceLayer]) -> list[Any]:
        """Return the entry of each layer of the output, as stated by the layer's own model.

        If a model does not state the setting, the reference's entries are used.
        """
        entries_of_models: dict[int, list[Any]] = {}
        for origin in origins:
            if origin.model not in entries_of_models:
                entries_of_models[origin.model] = self._entries(key, origin.config) or default
        return [
            entries_of_models[origin.model][origin.layer % len(entries_of_models[origin.model])]
            for origin in origins
        ]

    def _entries(self, key: str, config: Config) -> list[Any] | None:
        section = section_at(config, self.path) or config
        stated_count = section.get(self.counting_key)
        count = (
            stated_count
            if type(stated_count) is int and 0 < stated_count <= _MOST_LAYERS
            else self.count
        )
        for rule in rules_of(section, config, self.path if section is not config else ()):
            if rule.name == key:
                return rule.entries(section, count)
        return read_layer_list(key, section.get(key), count)


def _first_difference(
    rule: Rule, section: Config, expected: Sequence[Any], origins: Sequence[SourceLayer]
) -> int | None:
    """Return the first layer whose entry differs from the expected one; None if all are equal."""
    entries = rule.entries(section, len(origins))
    if entries is None:
        return 0
    for place, (entry, expected_entry) in enumerate(zip(entries, expected)):
        if isinstance(entry, LayerNumber):
            named_layer = origins[entry] if 0 <= entry < len(origins) else None
            is_same = named_layer is not None and (named_layer.model, named_layer.layer) == (
                origins[place].model,
                expected_entry,
            )
            is_same = is_same and (entry == place) == (expected_entry == origins[place].layer)
        else:
            is_same = entry == expected_entry
        if not is_same:
            return place
    return None


def _renumbered(entries: list[Any], origins: Sequence[SourceLayer]) -> list[Any]:
    """Return the entries with layer numbers of the sources replaced by those of the output."""
    new_entries = []
    for place, entry in enumerate(entries):
        if isinstance(entry, LayerNumber):
            origin = origins[place]
            earlier_places = [
                number
                for number in range(place)
                if (origins[number].model, origins[number].layer) == (origin.model, int(entry))
            ]
            is_itself = entry == origin.layer or not earlier_places
            entry = LayerNumber(place if is_itself else earlier_places[-1])
        new_entries.append(entry)
    return new_entries


def _move_last_stage(
    before: Config, section: dict[str, Any], count: int, length: int
) -> list[Unstated]:
    """Write the names of a backbone's stages (its layers), if its output is the last stage.

    A setting that names other stages cannot be stated, unless the number of layers is unchanged.
    """
    stage_names = ["stem", *(f"stage{n + 1}" for n in range(count))]
    stated_outputs = {key: before[key] for key in _LAST_STAGE[1:] if before.get(key) is not None}
    if before.get("stage_names") != stage_names:
        return []
    section["stage_names"] = ["stem", *(f"stage{n + 1}" for n in range(length))]
    last_stage = {"out_features": [stage_names[-1]], "out_indices": [count]}
    for key, value in stated_outputs.items():
        if value != last_stage[key]:
            return [Unstated(key, (key,), f"{key}: {value}", 0)] if length != count else []
        section[key] = {"out_features": [f"stage{length}"], "out_indices": [length]}[key]
    return []
