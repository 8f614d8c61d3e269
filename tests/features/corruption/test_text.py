"""Spelling errors and tokens out of place."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features.corruption import corrupt_text, misspell, reorder
from mbd.params.base import CorruptionSettings
from mbd.randomness import stream

SENTENCE = "The film was not bad at all, and the second half of it was a real pleasure to watch."
SEEDS = st.integers(0, 2**32 - 1)


@given(st.text(max_size=80), st.floats(0.01, 1), SEEDS)
@settings(deadline=None, max_examples=300)
def test_misspelling_changes_the_text_but_no_token_comes_or_goes(text: str, share: float, seed: int) -> None:
    letters = sum(not c.isspace() for c in text)
    errors = max(round(share * letters), 1 if letters else 0)
    misspelt = misspell(text, share, stream(seed))
    assert len(misspelt.split()) == len(text.split())
    assert 0 <= len(text) - len(misspelt) <= errors
    assert [c for c in misspelt if c.isspace()] == [c for c in text if c.isspace()]
    assert (misspelt != text) == (letters > 0)
    # A swap changes no counts, a drop one, a replacement two.
    before, after = Counter(text), Counter(misspelt)
    assert ((before - after) + (after - before)).total() <= 2 * errors


def test_all_three_kinds_of_errors_happen() -> None:
    swapped = dropped = replaced = 0
    for seed in range(60):
        wrong = misspell("wonderful", 0.01, stream(seed))
        same_letters = Counter(wrong) == Counter("wonderful")
        swapped += same_letters
        dropped += len(wrong) == 8
        replaced += len(wrong) == 9 and not same_letters
    assert min(swapped, dropped, replaced) >= 8


def test_capitals_stay_capitals_and_no_share_means_no_errors() -> None:
    assert all(misspell("A", 1.0, stream(seed)) in "BCDEFGHIJKLMNOPQRSTUVWXYZ" for seed in range(50))
    assert misspell(SENTENCE, 0.0, stream(0)) == SENTENCE


@given(
    st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=4), max_size=20), st.integers(0, 5), SEEDS
)
@settings(deadline=None, max_examples=150)
def test_reordering_keeps_the_tokens_and_moves_none_far(tokens: list[str], distance: int, seed: int) -> None:
    numbered = [f"{token}{i}" for i, token in enumerate(tokens)]
    moved = reorder(" ".join(numbered), distance, stream(seed)).split()
    assert sorted(moved) == sorted(numbered)
    assert all(abs(numbered.index(token) - place) <= distance for place, token in enumerate(moved))


def test_a_damaged_text_belongs_to_the_seed_and_the_row() -> None:
    first = corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_1")
    assert first != SENTENCE
    assert first == corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_1")
    assert first != corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_2")
    assert first != corrupt_text(SENTENCE, CorruptionSettings(), 1, "v_1")
    assert len(first.split()) == len(SENTENCE.split())
