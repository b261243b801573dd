"""The notebook with Drive, with a repo of the Hub, and where there is nothing to try or to push."""

from __future__ import annotations

from pathlib import Path

from notebook_kernels import Hands, cell_outputs, cells, text_of

COLAB = """
import sys, types
from pathlib import Path

def mount(folder, force_remount=False):
    mounted.append(force_remount)
    if not broken:
        (Path(folder) / "MyDrive").mkdir(parents=True, exist_ok=True)

mounted, broken = [], False
colab = types.ModuleType("google.colab")
colab.drive = types.SimpleNamespace(mount=mount)
sys.modules["google"] = types.ModuleType("google")
sys.modules["google.colab"] = colab
"""

SAYS = """
try:
    print(mirror_place())
except RuntimeError as error:
    print(error)
"""


def test_drive_is_mounted_whenever_its_cell_is_run_and_settings_keep_it(
    hands: Hands, tmp_path: Path
) -> None:
    lost = "import shutil; shutil.rmtree(my_drive.parent)"
    notebook = cells(
        *(COLAB, "settings", SAYS, "install", "broken = True"),
        *("drive", SAYS, "broken = False", "drive", "drive", "settings", SAYS),
        *("plan", "run", "print(mounted)", "settings", "run", lost, "drive", "print(mounted)"),
    )
    notebook.cells[5]["metadata"]["tags"] = ["raises-exception"]
    notebook.cells[12].source = "recipe_file = os.environ['RESUMERGE_RECIPE']\n" + (
        notebook.cells[12].source
    )
    drive = tmp_path / "drive"
    env = {"RESUMERGE_MIRROR": "drive", "RESUMERGE_DRIVE": str(drive)}
    hands.run_all(notebook=notebook, **env)
    asked = "Google Drive is not connected: run the cell of step 4, then this one again\n"
    assert text_of(notebook, "extra-2") == text_of(notebook, "extra-6") == asked
    (error,) = cell_outputs(notebook, "drive-5")
    assert "was not mounted" in error["evalue"]
    place = str(drive / "MyDrive" / "resumerge" / "merged")
    assert text_of(notebook, "extra-11") == f"{place}\n"
    shown = [o["data"]["text/html"] for o in cell_outputs(notebook, "plan-12") if "data" in o]
    assert place in shown[0]
    assert text_of(notebook, "extra-14") == "[True, True, False]\n", "mounted again each time"
    assert "Already done: " in text_of(notebook, "run-16")
    assert text_of(notebook, "extra-19") == "[True, True, False, True]\n"
    assert not (hands.machine / "drive").exists()
    assert "Mirror: " + place in text_of(notebook, "drive-18")


def test_no_upload_of_a_part_and_the_advice_works(hands: Hands) -> None:
    env = {
        "RESUMERGE_MIRROR": "hf://org/mirrored",
        "RESUMERGE_PUSH_TO": "org/pushed",
        "HF_TOKEN": "hf_test",
    }
    hands.merge("--mirror", env["RESUMERGE_MIRROR"], HF_TOKEN=env["HF_TOKEN"])
    hands.lose_machine()
    nothing = "import huggingface_hub\nprint(huggingface_hub.repo_exists('org/pushed'))"
    advice = "advice = how_to_have_it().splitlines()[-1]\nprint(advice)\nexec(advice)"
    notebook = cells(
        *("settings", "install", "recipe", "run", "print(Path(output).exists())", "try", "push"),
        *(nothing, advice, "try", "push"),
    )
    hands.run_all(notebook=notebook, **env)
    assert "Already done: hf://org/mirrored" in text_of(notebook, "run-3")
    assert text_of(notebook, "extra-4") == text_of(notebook, "extra-7") == "False\n"
    said = text_of(notebook, "push-6")
    assert said.startswith("Nothing was uploaded. The finished model is only in the mirror")
    advised = said.strip().splitlines()[-1]
    assert text_of(notebook, "try-5").strip().splitlines()[-1] == advised
    assert text_of(notebook, "extra-8").startswith(f"{advised}\n"), "what was said is done"
    assert text_of(notebook, "try-9").startswith("The capital of France is ")
    whole = {path.name: path.read_bytes() for path in hands.output.iterdir()}
    pushed = hands.hub.contents("org/pushed")
    assert {name: pushed[name] for name in whole} == whole


def test_a_model_that_lies_in_a_folder_is_pushed_from_there(hands: Hands, tmp_path: Path) -> None:
    env = {
        "RESUMERGE_MIRROR": str(tmp_path / "far"),
        "RESUMERGE_PUSH_TO": "org/pushed",
        "HF_TOKEN": "hf_test",
    }
    half = "Path(output, 'config.json').unlink(); next(Path(output).glob('*.safetensors')).unlink()"
    notebook = cells("settings", "install", "recipe", "run", half, "push")
    hands.run_all(notebook=notebook, **env)
    far = {path.name: path.read_bytes() for path in (tmp_path / "far").iterdir() if path.is_file()}
    pushed = hands.hub.contents("org/pushed")
    assert {name: pushed[name] for name in far} == far
    assert not [name for name in pushed if name.startswith(".resumerge")]


def test_nothing_to_try_is_told_in_a_sentence(hands: Hands) -> None:
    no_words = "for path in Path(output).glob('tokenizer*'): path.unlink()"
    env = {"RESUMERGE_OUTPUT": "made/here/merged", "RESUMERGE_PUSH_TO": "org/pushed"}
    text = "os.environ['RESUMERGE_RECIPE'] = ''"
    as_file = f"recipe_file = {str(hands.machine.parent / 'merge.yaml')!r}"
    notebook = cells(
        *("settings", "install", text, "recipe", "try", "push"), *(as_file, "run", no_words, "try")
    )
    hands.run_all(notebook=notebook, **env)
    assert (hands.machine / "made" / "here" / "merged.yaml").exists()
    assert text_of(notebook, "try-4").startswith("There is no finished model yet")
    assert "There is no finished model yet" in text_of(notebook, "push-5")
    assert "org/pushed" not in hands.hub.repos
    assert "transformers cannot generate text with it" in text_of(notebook, "try-9")
