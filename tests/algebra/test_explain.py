"""What a signal says about itself."""

from __future__ import annotations

import pytest

from palaestra.algebra.explain import terms
from palaestra.algebra.signals import Signal, centre, col, mean, rank, short, sign, where
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas, gigpo, grpo, mars, reinforce, return_to_go, standardise

TURNS = Turns(
    {
        "group": [0, 0, 0, 1, 1, 2],
        "episode": [0, 1, 2, 0, 1, 0],
        "turn": [0] * 6,
        "agent": ["a"] * 6,
        "state": [0, 0, 1, 0, 0, 0],
        "reward": [1.0, 0.0, 0.0, 1.0, 1.0, 4.0],
        "logprobs": [[-1.0], [-2.0, -2.0], [], [-1.0], [-1.0], [-3.0]],
    }
)


def test_the_tree_has_a_line_per_node_and_masks_are_part_of_it() -> None:
    signal = 0.5 * centre("reward", over=("group", "agent"), where=col("reward") > 0) + 1
    assert signal.explain().splitlines() == [
        "add",
        "├─ mul",
        "│  ├─ 0.5",
        "│  └─ centre over (group, agent) unit=row singleton=zero where",
        "│     ├─ col('reward')",
        "│     └─ gt",
        "│        ├─ col('reward')",
        "│        └─ 0.0",
        "└─ 1.0",
    ]


def test_named_methods_keep_their_names() -> None:
    lines = gigpo(gamma=0.9).explain().splitlines()
    assert lines[0] == "gigpo(gamma=0.9) = add"
    assert any("return_to_go('reward', gamma=0.9) = cumulative" in line for line in lines)
    assert any("over (group, state)" in line for line in lines)
    assert "over the batch" in reinforce().explain()


def test_with_a_table_each_statistic_says_what_it_ranged_over() -> None:
    lines = grpo().explain(TURNS).splitlines()
    assert lines[0].startswith("grpo() = standardise over (group) unit=episode ddof=1 eps=1e-06 singleton=zero")
    # three groups of 3, 2 and 1 episodes; group 1 is constant and group 2 alone, so half of the rows have no credit
    assert lines[0].endswith("[3 keys, 1–3 samples each, 67% constant, 33% with one sample, 50% of rows zero]")
    assert lines[1].endswith("[6 keys, 1 samples each, 100% constant]")


def test_statistics_of_tokens_and_of_nothing() -> None:
    tokens = mean("logprobs", over="group").explain(TURNS).splitlines()[0]
    assert tokens.endswith("[3 keys, 1–3 samples each, 67% constant]")
    nothing = mean("reward", over="group", where=col("reward") > 9).explain(TURNS).splitlines()[0]
    assert nothing.endswith("[no samples]")
    some = mean("reward", over="group", where=col("group") < 2).explain(TURNS).splitlines()[0]
    assert some.endswith("[2 keys, 2–3 samples each, 50% constant]")
    assert rank("reward", over="group").explain(TURNS).splitlines()[0] == "rank over (group) ties=average"
    empty = Turns(TURNS.frame.head(0))
    assert "[no samples]" in gigpo().explain(empty)


def test_computed_keys_are_shown() -> None:
    signal = mean("reward", over=("group", col("reward") > 0))
    assert signal.explain().splitlines()[0] == "mean over (group, col('reward') > 0.0) unit=row"


def test_contributions_are_shares_of_the_mean_size() -> None:
    signal = col("reward") + 2 * col("reward") - col("state")
    sizes = {"col('reward')": 7 / 6, "2.0 * col('reward')": 14 / 6, "-col('state')": 1 / 6}
    expected = {name: size / sum(sizes.values()) for name, size in sizes.items()}
    assert signal.contributions(TURNS) == pytest.approx(expected)


def test_contributions_of_methods_go_by_their_names() -> None:
    blend = 0.25 * grpo() + 0.75 * dr_mas()
    shares = blend.contributions(TURNS)
    assert list(shares) == ["0.25 * grpo()", "0.75 * dr_mas()"]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["0.75 * dr_mas()"] > shares["0.25 * grpo()"]


def test_the_two_levels_of_gigpo_are_told_apart() -> None:
    shares = gigpo().contributions(TURNS)
    assert len(shares) == 2
    assert sum(shares.values()) == pytest.approx(1)
    assert any("return_to_go" in name for name in shares)


def test_a_signal_without_size_contributes_nothing() -> None:
    assert (0 * col("reward")).contributions(TURNS) == {"0.0 * col('reward')": 0.0}
    unscored = TURNS.with_column(reward=[None] * 6)
    assert centre("reward", over=()).contributions(unscored) == {short(centre("reward", over=())): 0.0}
    tokens = (col("logprobs") * 1.0 + "logprobs").contributions(TURNS)
    assert list(tokens.values()) == pytest.approx([0.5, 0.5])


def test_terms_are_what_is_added() -> None:
    a, b, c = col("a"), col("b"), col("c")
    assert [t.text for t in terms(a - (b - c))] == ["col('a')", "-col('b')", "col('c')"]
    assert [t.text for t in terms(a + b - c)] == ["col('a')", "col('b')", "-col('c')"]
    assert [t.text for t in terms(where(a, b, c))] == ["where(col('a'), col('b'), col('c'))"]


def test_what_is_larger_than_the_largest_is_not_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(largest: int) -> tuple[str, str, list[str], bool]:
        for module in ("text", "explain"):
            monkeypatch.setattr(f"palaestra.algebra.{module}.LARGEST", largest)
        signal = (col("a") + 1) * (col("a") + 1) - return_to_go(gamma=0.5)
        assert signal.size == 10
        return str(signal), short(signal), [short(term) for term in terms(signal)], "[as above]" in signal.explain()

    added, name = "(col('a') + 1.0) * (col('a') + 1.0)", "return_to_go(gamma=0.5)"
    whole, before, parts, again = shown(10)
    assert whole.startswith(f"({added}) - cumulative(col('reward'), gamma=0.5, ")
    assert (before, len(parts), again) == (f"({added}) - {name}", 2, False)
    assert shown(9) == (f"({added}) - {name}", "…", ["…"], True)
    for largest, label in ((len("mars()"), "mars()"), (5, "…")):  # a long name is not shown either
        monkeypatch.setattr("palaestra.algebra.text.LARGEST", largest)
        assert str(sign(mars())) == f"sign({label})"


def test_short_text_leaves_methods_unexpanded() -> None:
    assert short(0.5 * grpo() - return_to_go(gamma=0.9)) == "(0.5 * grpo()) - return_to_go(gamma=0.9)"
    assert short(standardise(return_to_go(gamma=0.9), over="group")).startswith(
        "standardise(return_to_go(gamma=0.9), over=('group',)"
    )
    assert isinstance(grpo() * 1, Signal)
