from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pyspiel = pytest.importorskip("pyspiel")

from palaestra.envs.openspiel import OpenSpielEnv, openspiel  # noqa: E402
from palaestra.errors import EnvError, InputError  # noqa: E402
from palaestra.testing.env import check_env  # noqa: E402


@pytest.mark.parametrize("illegal", ["lose", "random"])
@pytest.mark.parametrize(
    ("game", "varied"),
    [
        ("kuhn_poker", True),
        ("kuhn_poker(players=3)", True),
        ("leduc_poker", True),
        ("tiny_hanabi", True),
        ("liars_dice", True),
        ("tic_tac_toe", False),
        ("connect_four", False),
        ("matrix_rps", False),
        ("matrix_pd", False),
        ("goofspiel(num_cards=3)", True),
        ("hanabi(players=2,colors=2,ranks=2,hand_size=2)", True),
        ("markov_soccer(horizon=5)", True),
    ],
)
def test_every_kind_of_game_keeps_the_protocol(game, varied, illegal):
    check_env(openspiel(game, illegal=illegal), varied=varied)


def play(env, seed, moves):
    """Texts and results of one episode; `moves` are actions, or dicts of them."""
    observations, seen, results = env.reset(seed), [], []
    for move in moves:
        seen.append({agent: observation.text for agent, observation in observations.items()})
        actions = move if isinstance(move, dict) else dict.fromkeys(observations, move)
        results.append(env.step(actions))
        observations = results[-1].observations
    return seen, results


def seed_of(env, deal):
    return next(seed for seed in range(1000) if env.reset(seed) and env.task.endswith(f":{deal}"))


def test_kuhn_poker_is_told_and_paid_as_the_rules_say():
    env = openspiel("kuhn_poker")()
    seen, results = play(env, seed_of(env, "2,0"), ["Pass", "Bet", "Bet"])
    assert seen == [{"player_0": "p0 2"}, {"player_1": "p1 0p"}, {"player_0": "p0 2pb"}]
    assert [result.rewards for result in results] == [{"player_0": 0, "player_1": 0}] * 2 + [
        {"player_0": 2, "player_1": -2}
    ]
    assert results[-1].terminated
    assert not results[-1].observations
    assert results[-1].info["success"] == {"player_0": True, "player_1": False}
    assert env.state.is_terminal()


def test_the_task_is_the_deal_and_all_deals_come_equally_often():
    env = openspiel("kuhn_poker")()
    tasks = []
    for seed in range(600):
        env.reset(seed)
        tasks.append(env.task)
        assert env.task == f"kuhn_poker:{env.state.history_str().replace(' ', '')}"
    assert {task.split(":")[1] for task in tasks} == {"0,1", "0,2", "1,0", "1,2", "2,0", "2,1"}
    assert min(tasks.count(task) for task in set(tasks)) > 65
    fixed = openspiel("tic_tac_toe")()
    fixed.reset(3)
    assert fixed.task == "tic_tac_toe"


def test_observations_tell_information_states_apart_and_never_more():
    """Two decision points look alike to an agent iff they are the same information state of OpenSpiel."""
    for game in ("kuhn_poker", "leduc_poker", "tiny_hanabi"):
        env = openspiel(game)()
        rng = np.random.default_rng(0)
        texts: dict[tuple[str, str], set[str]] = {}
        for seed in range(300):
            observations = env.reset(seed)
            while observations:
                ((agent, seen),) = observations.items()
                information = env.state.information_state_string(int(agent[-1]))
                texts.setdefault((agent, seen.text), set()).add(information)
                observations = env.step({agent: int(rng.choice(np.flatnonzero(seen.mask)))}).observations
        assert all(len(found) == 1 for found in texts.values()), game
        assert len({(agent, *found) for (agent, _), found in texts.items()}) == len(texts), game


def test_leduc_text_is_short():
    env = openspiel("leduc_poker")()
    seen, _ = play(env, seed_of(env, "0,2"), ["Raise", "Call", "Call", "Raise"])
    public = env.state.history()[4]
    assert [text for turn in seen for text in turn.values()] == [
        "p0 0 - |",
        "p1 2 - r|",
        f"p0 0 {public} rc|",
        f"p1 2 {public} rc|c",
    ]


def test_boards_are_one_line():
    env = openspiel("tic_tac_toe")()
    seen, _ = play(env, 0, ["x(1,1)", "o(0,2)"])
    assert seen == [{"player_0": "p0 .../.../..."}, {"player_1": "p1 .../.x./..."}]
    assert env.state.observation_string(0) == "..o\n.x.\n..."


def test_simultaneous_moves_are_made_at_once():
    env = openspiel("matrix_rps")()
    _, (result,) = play(env, 0, [{"player_0": "Paper", "player_1": "Rock"}])
    assert result.rewards == {"player_0": 1, "player_1": -1}
    with pytest.raises(EnvError, match="player_1"):
        play(env, 0, [{"player_0": "Paper"}])


def test_rewards_add_up_to_the_returns():
    env = openspiel("markov_soccer(horizon=20)")()
    coop = openspiel("coop_box_pushing(horizon=12)")()
    rng = np.random.default_rng(1)
    for game in (env, coop):
        for seed in range(5):
            observations, total = game.reset(seed), np.zeros(2)
            while observations:
                result = game.step({agent: int(rng.integers(4)) for agent in observations})
                observations = result.observations
                total += [result.rewards[agent] for agent in game.agents]
            np.testing.assert_allclose(total, game.state.returns())


def test_a_forfeit_costs_the_minimum_and_others_share_what_is_missing():
    _, (result,) = play(openspiel("kuhn_poker(players=3)")(), 0, ["cheat"])
    assert result.rewards == {"player_0": -2, "player_1": 1, "player_2": 1}
    assert result.terminated
    assert result.info == {
        "valid": {"player_0": False},
        "success": {"player_0": False, "player_1": True, "player_2": True},
    }
    _, results = play(openspiel("connect_four")(), 0, ["x0", "o9"])
    assert results[1].rewards == {"player_0": 1, "player_1": -1}
    _, (both,) = play(openspiel("matrix_rps")(), 0, [{"player_0": "Well", "player_1": 9}])
    assert both.rewards == {"player_0": -1, "player_1": -1}
    _, (common,) = play(openspiel("tiny_hanabi")(), 0, [17])
    assert common.rewards == {"player_0": 0, "player_1": 0}
    _, (general,) = play(openspiel("matrix_pd")(), 0, [{"player_0": "Defect", "player_1": "?"}])
    assert general.rewards == {"player_0": 0, "player_1": 0}
    assert "success" not in general.info


def test_a_random_legal_move_replaces_an_illegal_one_without_touching_chance():
    env = openspiel("leduc_poker", illegal="random")()
    _, results = play(env, 4, ["?"] * 2)
    assert [result.info["valid"] for result in results] == [{"player_0": False}, {"player_1": False}]
    assert not results[0].terminated
    slipped = env.state.history()
    legal = openspiel("leduc_poker")()
    legal.reset(4)
    assert legal.state.history()[:2] == slipped[:2], "the deal is the same"
    first = {tuple(play(env, seed, ["?"])[1][0].observations) and env.state.history()[2] for seed in range(40)}
    assert len(first) == 2, "both legal first moves are played"


def test_success_can_be_a_threshold():
    moves = {"player_0": "Cooperate", "player_1": "Defect"}
    _, (result,) = play(openspiel("matrix_pd", success=5)(), 0, [moves])
    assert result.info["success"] == {"player_0": False, "player_1": True}


def test_text_and_tensor_are_the_games_own():
    env = openspiel("kuhn_poker", text=lambda state, player: f"I am {player}")()
    seen = env.reset(0)["player_0"]
    assert seen.text == "I am 0"
    assert seen.array is not None
    np.testing.assert_array_equal(seen.array, np.float32(env.state.information_state_tensor(0)))
    board = openspiel("tic_tac_toe")()
    array = board.reset(0)["player_0"].array
    assert array is not None
    np.testing.assert_array_equal(array, np.float32(board.state.observation_tensor(0)))


def test_names_that_depend_on_the_position_stay_unique():
    env = openspiel("chess")()
    seen = env.reset(0)["player_1"]  # OpenSpiel counts white as player 1
    assert {"e4", "Nf3"} <= set(seen.legal)
    assert len({name.casefold() for name in seen.legal}) == 20
    black = env.step({"player_1": "e4"}).observations["player_0"]
    assert "e5" in black.legal
    assert black.index("e4") is None


def test_names_that_differ_in_case_only_get_their_id():
    from palaestra.envs.openspiel import _names_here

    assert _names_here((3, 0, 1), ("bxc4", "Bxc4", "Kd2"), 5) == ("Bxc4 #0", "Kd2", "#2", "bxc4 #3", "#4")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("kuhn_pokr", "did you mean 'kuhn_poker'"),
        ("kuhn_poker(plyers=2)", "Available parameters are: players"),
        ("mfg_garnet", "mean-field"),
        ("negotiation", "seed of its own"),
        ("crossword", "numbered actions"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(name, message):
    with pytest.raises(InputError, match=message):
        openspiel(name)


def test_a_wrong_option_is_refused():
    with pytest.raises(InputError, match="lose"):
        openspiel("kuhn_poker", illegal="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["hanabi(players=3,colors=2,ranks=3)", "hanabi(players=9)"])
def test_a_game_that_would_end_python_is_refused(name):
    with pytest.raises(InputError, match=r"would end Python: Input requirements failed .* in HanabiGame: "):
        openspiel(name)
    assert openspiel("kuhn_poker(players=3)")().agents == ("player_0", "player_1", "player_2")


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "tic_tac_toe", "connect_four", "liars_dice", "hanabi"])
def test_features_and_names_are_the_games_own(name):
    """They come from caches and from an observer; pyspiel's slow methods say what they must be."""
    env, rng = openspiel(name, illegal="random")(), np.random.default_rng(0)
    for seed in range(15):
        seen = env.reset(seed)
        while seen:
            ((agent, observation),) = seen.items()
            player = int(agent[-1])
            slow = getattr(env.state, env._tensor)(player)
            np.testing.assert_array_equal(observation.array, np.array(slow, np.float32))
            legal = env.state.legal_actions(player)
            assert np.flatnonzero(observation.mask).tolist() == legal
            for action in legal:
                called = env.state.action_to_string(player, action).strip()
                assert observation.choices[action] in (called, f"{called} #{action}")
            before = observation.array.copy()
            seen = env.step({agent: int(rng.choice(legal))}).observations
            np.testing.assert_array_equal(observation.array, before, "an observation does not change later")


@pytest.mark.parametrize("game", ["matrix_rps", "goofspiel(num_cards=3,imp_info=True,points_order=descending)"])
def test_exact_measures_read_simultaneous_games_as_players_do(game: str) -> None:
    from palaestra.envs.worlds.exact.exploitability import information_states

    env = OpenSpielEnv(game)
    played = {observation.key() for observation in env.reset(0).values()}
    walked = {OpenSpielEnv(game).look(each.state, each.player).key() for each in information_states(game)}
    assert played <= walked, "what was learned is what is measured"


def test_what_nobody_reads_is_not_made():
    """A table over features and an MLP read features and the mask; the text is for those that read."""
    told: list[int] = []
    env = openspiel("tic_tac_toe", text=lambda state, player: told.append(player) or f"move {state.move_number()}")()
    told.clear()
    seen, shown = env.reset(0), []
    while seen:
        ((agent, observation),) = seen.items()
        assert observation.array is not None
        shown.append(observation)
        seen = env.step({agent: int(observation.mask.argmax())}).observations
    assert told == []
    assert [each.text for each in shown] == [f"move {turn}" for turn in range(len(shown))], "each of its own turn"
    assert told == [turn % 2 for turn in range(len(shown))]


def record(seen):
    return seen.text, seen.choices, seen.mask.tolist(), seen.array.tolist(), seen.key()


@pytest.mark.parametrize("name", ["leduc_poker", "connect_four", "goofspiel(num_cards=3)", "chess"])
def test_an_observation_is_the_same_whenever_it_is_read(name):
    """At its turn or after the game, by one env or another, and whatever a reader writes into it."""
    early, late, rng = openspiel(name)(), openspiel(name)(), np.random.default_rng(3)
    for seed in (0, 1, 1):
        found, held = [], []
        seen, again = early.reset(seed), late.reset(seed)
        while seen and len(held) < 20:
            found += [record(each) for each in seen.values()]
            held += again.values()
            moves = {agent: int(rng.choice(np.flatnonzero(each.mask))) for agent, each in seen.items()}
            seen, again = early.step(moves).observations, late.step(moves).observations
        assert [record(each) for each in held] == found
        for each in held:
            for array in (each.mask, each.array):
                if array.flags.writeable:  # arrays that episodes share cannot be written to
                    array[:] = 0


def test_the_state_is_a_copy():
    env = openspiel("kuhn_poker")()
    env.reset(0)
    env.state.apply_action(0)
    assert env.state.move_number() == 2
    assert env.step({"player_0": "Bet"}).observations["player_1"].text.endswith("b")


def test_a_snapshot_outlives_the_game_and_a_pickle():
    env = openspiel("leduc_poker")()
    env.reset(3)
    saved = env.snapshot()
    kept = pickle.dumps(saved)
    before = play(env, 3, [1, 1, 1, 1])
    for snapshot in (saved, copy.deepcopy(saved), pickle.loads(kept)):
        seen, texts = env.restore(snapshot), []
        while seen:
            texts.append({agent: each.text for agent, each in seen.items()})
            seen = env.step(dict.fromkeys(seen, 1)).observations
        assert texts == before[0]


def test_only_so_many_states_are_remembered():
    from palaestra.envs.openspiel_states import Tree

    tree = Tree(pyspiel.load_game("tic_tac_toe").new_initial_state(), room=2)
    first = tree.after(tree.root, 0)
    assert tree.after(tree.root, 0) is first
    second = tree.after(first, 1)
    beyond = tree.after(second, 2)
    assert tree.after(second, 2) is not beyond
    assert beyond.observations is None
    assert tree.after(beyond, 3).state.history() == [0, 1, 2, 3]
    assert (tree.room, tree.root.state.history()) == (0, [])
    forgetful = Tree(tree.root.state, room=0)
    assert forgetful.after(forgetful.root, 0) is not forgetful.after(forgetful.root, 0)


def test_an_env_with_its_own_text_does_not_share_it():
    kuhn = openspiel("kuhn_poker", text=lambda state, player: "mine")()
    assert kuhn.reset(0)["player_0"].text == "mine"
    assert openspiel("kuhn_poker")().reset(0)["player_0"].text != "mine"


def test_threads_that_read_at_once_see_their_own_features():
    env = openspiel("connect_four")()
    seen, shown = env.reset(0), []
    while seen and len(shown) < 30:
        shown += seen.values()
        seen = env.step({agent: int(each.mask.argmax()) for agent, each in seen.items()}).observations
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda each: each.array.tolist(), shown))
    seen = env.reset(0)
    for array in together:
        ((agent, each),) = seen.items()
        assert array == each.array.tolist()
        seen = env.step({agent: int(each.mask.argmax())}).observations


@pytest.mark.parametrize("name", ["tiny_hanabi", "kuhn_poker", "hanabi(players=2,colors=1,hand_size=2)"])
def test_everyone_may_be_asked(name):
    check_env(openspiel(name, everyone=True), seeds=range(4))


def test_who_waits_sees_what_the_game_shows_it_and_passes():
    game = "hanabi(players=2,colors=2,hand_size=2,max_life_tokens=1)"
    env, alone, rng = openspiel(game, everyone=True)(), openspiel(game)(), np.random.default_rng(0)
    for seed in range(5):
        seen, one = env.reset(seed), alone.reset(seed)
        while seen:
            ((acting, own),) = one.items()
            for player, (agent, observation) in enumerate(seen.items()):
                np.testing.assert_array_equal(observation.array, alone.state.observation_tensor(player))
                assert observation.choices[:-1] == own.choices or agent != acting
                assert observation.legal == (own.legal if agent == acting else ("pass",))
            move = int(rng.choice(np.flatnonzero(own.mask)))
            last = env.game.num_distinct_actions()
            found, plain = (
                env.step({each: move if each == acting else last for each in seen}),
                alone.step({acting: move}),
            )
            assert found.rewards == plain.rewards
            assert all(found.info["valid"].values())
            seen, one = found.observations, plain.observations
        assert found.terminated


def test_a_waiting_player_cannot_do_anything_else():
    env = openspiel("kuhn_poker", everyone=True)()
    result = (env.reset(0), env.step({"player_0": 0, "player_1": 0}))[1]
    assert result.info["valid"] == {"player_0": True, "player_1": False}
    assert result.observations, "the game goes on"
    with pytest.raises(EnvError, match="agents to act"):
        env.step({"player_1": 0})
    with pytest.raises(InputError, match="at once already"):
        openspiel("matrix_rps", everyone=True)
