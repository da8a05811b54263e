"""What `diagnose` says of padding: what is refused, what is served instead, and what is gained."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep_gemm.cli import padding
from deep_gemm.config import by_name, explain
from deep_gemm.problem import GemmProblem, checks

H200 = by_name("h200")
RAGGED = GemmProblem.block_scaled(997, 1000, 1008)


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ((7, 1000, 1008), []),
        ((7, 1001, 1008), ["N = 1008"]),
        ((7, 1000, 1001), []),
        ((7, 4, 8), ["N = 8"]),
    ],
)
def test_refusals_name_what_to_pad_to(shape: tuple[int, int, int], named: list[str]) -> None:
    found = padding.refusals(GemmProblem.block_scaled(*shape))
    assert len(found) == len(named)
    assert all(text in sentence for text, sentence in zip(named, found, strict=True))


@given(n=st.integers(1, 5000), k=st.integers(1, 5000))
@settings(max_examples=50, deadline=None)
def test_the_least_padding_is_served_and_least(n: int, k: int) -> None:
    problem = GemmProblem.block_scaled(3, n, k)
    found = padding.served(problem)
    checks.tma_extents(found.n, found.d_dtype.bytes)
    assert found.m == 3 and 0 <= found.n - n < 8 and found.k == k
    assert (found == problem) == (not padding.refusals(problem))


def test_choices_are_the_next_multiples_at_their_predicted_times() -> None:
    first, *others = padding.choices(RAGGED, H200)
    assert (first.what, first.problem) == (padding.AS_IT_IS, RAGGED)
    for choice in (first, *others):
        best = explain(choice.problem, H200)[0]
        assert (choice.config, choice.us) == (best.config, best.estimate_us)
    assert {(c.problem.n, c.problem.k) for c in others} == {
        (1024, 1008), (1000, 1024), (1000, 1008), (1024, 1024),
    }  # fmt: skip
    assert 997 < max(c.problem.m for c in others) <= 1024 + 512


def test_a_refused_problem_starts_at_the_least_padding() -> None:
    first = padding.choices(GemmProblem.block_scaled(64, 1001, 1000), H200)[0]
    assert first.what == "least padding"
    assert (first.problem.n, first.problem.k) == (1008, 1000)


def test_the_pitch_of_rows_is_said_where_k_does_not_give_it() -> None:
    assert padding.pitch(GemmProblem.block_scaled(64, 1000, 1008)) is None
    said = padding.pitch(GemmProblem.block_scaled(64, 1000, 1001))
    assert said is not None and "1024" in said and "align_rows" in said


def test_whole_tiles_have_nothing_to_pad() -> None:
    found = padding.choices(GemmProblem.block_scaled(6144, 4096, 4096), H200)
    assert len(found) == 1
    assert padding.verdict(found) == "Nothing to pad: M, N and K are whole tiles."


def choice(what: str, m: int, us: float) -> padding.Choice:
    config = explain(RAGGED, H200)[0].config
    return padding.Choice(what, GemmProblem.block_scaled(m, 8, 16), config, us)


@pytest.mark.parametrize(
    ("what", "times", "said"),
    [
        (
            padding.AS_IT_IS,
            (10.0, 10.5, 10.2),
            "gains nothing: 2 x 8 x 16 is predicted to take 2.0 %",
        ),
        (padding.AS_IT_IS, (10.0, 9.0, 11.0), "to 1 x 8 x 16, is predicted to save 10.0 %"),
        (padding.AS_IT_IS, (10.0, 10.0, 10.0), "take 0.0 % longer"),
        ("least padding", (10.0, 10.5, 10.2), "Padding further gains nothing"),
    ],
)
def test_the_verdict_says_by_how_much(
    what: str, times: tuple[float, float, float], said: str
) -> None:
    found = [choice(what if i == 0 else "larger", i, us) for i, us in enumerate(times)]
    assert said in padding.verdict(found)
