"""The README of the components was generated from their compiled form."""

from components.readme import COMPONENTS, FILE, readme

STEPS = {"features", "train", "reference", "evaluate", "delete", "attack", "certify", "publish", "purge"}


def test_every_step_is_a_component() -> None:
    assert set(COMPONENTS) >= STEPS


def test_the_readme_is_the_generated_one() -> None:
    assert FILE.read_text(encoding="utf-8") == readme(), "run `python -m components.readme`"


def test_a_component_installs_nothing_when_it_starts() -> None:
    for name, component in COMPONENTS.items():
        assert "pip install" not in " ".join(component.component_spec.implementation.container.command), name


def test_metrics_and_pages_are_of_the_types_that_kubeflow_shows() -> None:
    outputs = COMPONENTS["attack"].component_spec.outputs
    assert outputs["metrics"].type == "system.Metrics@0.0.1"
    assert outputs["page"].type == "system.Markdown@0.0.1"
