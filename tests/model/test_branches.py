"""Branches of a modality are found by running a module: what hears it, and what the others can do without."""

from collections.abc import Mapping

import pytest
from torch import Tensor, nn

from mbd.errors import UsageError
from mbd.formats.features import Shape
from mbd.model.branches import Proposal, closing, propose, refuse_unbranched
from mbd.model.contract import Architecture
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.probing import probe
from tests.foreign_modules import FOREIGN, SHAPES, ForeignModule
from tests.model.modules import SEQUENCES, SIX_STREAMS_BRANCHES, VECTORS, Nonverbal, Tensors, WrappedSixStreams
from tests.refusals import refused

every_foreign = pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)


def names(proposal: Proposal | None) -> tuple[str, ...]:
    assert proposal
    return tuple(branch.name for branch in proposal.proposed)


@every_foreign
def test_the_smallest_set_of_outermost_submodules_is_proposed(foreign: ForeignModule) -> None:
    proposal = propose(Architecture(foreign.factory, foreign.shapes, 1), "audio")
    assert proposal
    assert names(proposal) == foreign.branches
    assert not proposal.named
    assert proposal.cut_with_proposal > proposal.cut or not foreign.branches


@every_foreign
def test_a_confirmed_proposal_lacks_nothing(foreign: ForeignModule) -> None:
    architecture = Architecture(foreign.factory, foreign.shapes, 1, branches={"audio": foreign.branches})
    proposal = propose(architecture, "audio")
    assert proposal
    assert not proposal.missing
    assert proposal.cut == proposal.cut_with_proposal
    refuse_unbranched(architecture, "audio")
    assert closing(architecture, "audio") is architecture


def test_cross_modal_pairs_belong_to_both_of_their_modalities() -> None:
    architecture = Architecture(WrappedSixStreams, SEQUENCES, 1)
    assert names(propose(architecture, "audio")) == SIX_STREAMS_BRANCHES["audio"]
    assert names(propose(architecture, "text")) == SIX_STREAMS_BRANCHES["text"]
    proposal = propose(architecture, "audio")
    assert proposal
    assert proposal.left_open == (
        "memories.l, memories.v, mix and out heard audio in training too, and stay for the other modalities.",
    )


def test_what_hears_all_inputs_at_once_is_left_open_in_words() -> None:
    foreign = FOREIGN["early fusion"]
    proposal = propose(Architecture(foreign.factory, foreign.shapes, 1), "audio")
    assert proposal
    assert proposal.left_open[0].startswith(
        "audio still reaches the output through layers.0, which also hears text and visual"
    )


def test_branches_that_are_named_in_part_are_completed() -> None:
    foreign = FOREIGN["cross-modal"]
    architecture = Architecture(foreign.factory, foreign.shapes, 1, branches={"audio": ["pairs.l_with_a"]})
    proposal = propose(architecture, "audio")
    assert proposal
    assert proposal.missing == ("pairs.v_with_a", "memories.a")
    assert proposal.left_open[0].startswith("audio still reaches the output")
    assert closing(architecture, "audio").branches == {"audio": foreign.branches}
    with refused(UsageError, key="model.branches.audio", value=["pairs.l_with_a"]):
        refuse_unbranched(architecture, "audio")


def test_a_cut_of_inputs_alone_is_refused_with_the_line_to_write() -> None:
    foreign = FOREIGN["cross-modal"]
    with refused(UsageError, key="model.branches.audio") as refusal:
        refuse_unbranched(Architecture(foreign.factory, foreign.shapes, 1), "audio")
    assert "model.branches.audio=[pairs.l_with_a, pairs.v_with_a, memories.a]" in str(refusal.value.hint)


def test_a_factory_that_builds_a_smaller_model_needs_no_branches() -> None:
    assert propose(Architecture(LateFusion, VECTORS, 1), "audio") is None


class Multiplying(nn.Module):
    """Text by audio, and nothing beside it."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__()
        self.text, self.audio = (nn.Linear(modalities[m].width, outputs) for m in ("text", "audio"))

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        del available
        product: Tensor = self.text(features["text"]) * self.audio(features["audio"])
        return product


def test_a_module_that_needs_the_modality_to_hear_another_has_no_branch() -> None:
    shapes = {m: VECTORS[m] for m in ("text", "audio")}
    assert names(propose(Architecture(Multiplying, shapes, 1), "audio")) == ()


class Gated(Multiplying):
    """The gate of audio is a sigmoid: silent as a whole it would close text off, its linear map would not."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs)
        self.audio = nn.Sequential(nn.Linear(modalities["audio"].width, outputs), nn.Sigmoid())  # type: ignore[assignment]


def test_a_part_is_proposed_where_the_whole_would_close_another_modality_off() -> None:
    shapes = {m: VECTORS[m] for m in ("text", "audio")}
    assert names(propose(Architecture(Gated, shapes, 1), "audio")) == ("audio.0",)


def test_what_is_named_wrongly_hides_nothing_that_is_proposed() -> None:
    foreign = FOREIGN["cross-modal"]
    wrong = Architecture(foreign.factory, foreign.shapes, 1, branches={"audio": ["memories.l", "memories.v"]})
    assert set(closing(wrong, "audio").branches["audio"]) > {"memories.l", "memories.v"}
    with refused(UsageError, key="model.branches.audio", value=["memories.l", "memories.v"]):
        refuse_unbranched(wrong, "audio")


def test_what_two_modalities_share_goes_when_both_go() -> None:
    architecture = Architecture(Nonverbal, SHAPES["vectors"], 1)
    assert names(propose(architecture, "audio")) == names(propose(architecture, "visual")) == ()
    together = propose(architecture, "visual", "audio")
    assert names(together) == ("nonverbal",)
    assert together
    assert together.setting == "model.branches={audio: [nonverbal], visual: [nonverbal]}"
    refuse_unbranched(architecture, "audio")
    with refused(UsageError, key="model.branches.audio", value=[]):
        refuse_unbranched(architecture, "audio", "visual")
    found = probe(closing(architecture, "audio", "visual"), "audio", "visual").tensors
    assert {name for name, part in found.items() if part.dead} == {
        f"nonverbal.{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")
    }


@pytest.mark.parametrize("name", ["tensor fusion", "low-rank fusion", "gated shift", "shared trunk"])
def test_the_branches_of_two_modalities_together_are_those_of_each(name: str) -> None:
    foreign = FOREIGN[name]
    architecture = Architecture(foreign.factory, foreign.shapes, 1)
    each = {m: names(propose(architecture, m)) for m in ("audio", "visual")}
    named = Architecture(foreign.factory, foreign.shapes, 1, branches={m: own for m, own in each.items() if own})
    together = propose(named, "audio", "visual")
    assert together
    assert not together.missing
    assert closing(named, "audio", "visual") is named
