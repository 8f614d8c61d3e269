"""Every component has a README that was generated from its compiled form."""

from components.readme import FOLDER, NAMES, load, readme

STEPS = {"features", "train", "reference", "evaluate", "delete", "attack", "certify", "publish", "purge"}


def test_every_step_is_a_component() -> None:
    assert set(NAMES) >= STEPS


def test_the_readme_is_the_generated_one() -> None:
    for name in NAMES:
        written = (FOLDER / name / "README.md").read_text(encoding="utf-8")
        assert written == readme(name), "run `python -m components.readme`"


def test_a_component_installs_nothing_when_it_starts() -> None:
    for name in NAMES:
        container = load(name).component_spec.implementation.container
        assert "pip install" not in " ".join(container.command), name


def test_metrics_and_pages_are_of_the_types_that_kubeflow_shows() -> None:
    outputs = load("attack").component_spec.outputs
    assert outputs["metrics"].type == "system.Metrics@0.0.1"
    assert outputs["page"].type == "system.Markdown@0.0.1"
