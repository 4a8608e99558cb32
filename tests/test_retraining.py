"""The shipped heads' curves: a run that is begun again from its card's command follows them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from specdec.training.config import TrainConfig
from specdec.training.trainer import read_log, train

ROOT = Path(__file__).parents[1]
CURVES = ROOT / "benchmarks" / "results" / "training.json"
STEPS = 4
# A clone has the texts and not the features that were recorded with them, so that the target runs once more: other rounding.
TOLERANCE = 0.02


def config_of(command: str) -> TrainConfig:
    """The configuration that `specdec train …` names."""
    words = command.split()
    options = dict(zip(words[3::2], words[4::2], strict=True))
    fields = {name.removeprefix("--").replace("-", "_"): value for name, value in options.items() if name != "--to"}
    data = str(ROOT / fields.pop("data"))
    return TrainConfig(words[2], data, **{name: value if name in ("init", "loss") else _number(value) for name, value in fields.items()})


def _number(text):
    return float(text) if "." in text else int(text)


@pytest.mark.model
@pytest.mark.parametrize("name", ["medusa", *(pytest.param(name, marks=pytest.mark.slow) for name in ("distilled", "eagle-1", "eagle-3"))])
def test_a_shipped_head_begins_again_on_its_curve(name, tmp_path, smollm2):
    run = json.loads(CURVES.read_text())["runs"][name]
    config = replace(config_of(run["command"]), validation_texts=1)  # which has no part in the steps
    train(config, tmp_path, stop_after=STEPS, target=smollm2)
    found = [line["loss"] for line in read_log(tmp_path / "log.jsonl") if "loss" in line]
    wanted = run["losses"][:STEPS]
    assert found == pytest.approx(wanted, rel=TOLERANCE), f"the curve of {name} began with {wanted}, and now with {found}"
    control = run["losses"][1 : STEPS + 1]
    assert found != pytest.approx(control, rel=TOLERANCE), "the curve must change by more than the tolerance in a step, or nothing is seen"
