import numpy as np
import pytest

from lit_rl.functional.returns import SHORT, discounted_return, gae, vtrace

GAMMA, LAM = 0.5, 0.5


def column(*numbers):
    return np.array(numbers, np.float64)[:, None]


def flags(*numbers):
    return np.array(numbers, bool)[:, None]


def assert_column(array, *numbers):
    assert array[:, 0].tolist() == pytest.approx(numbers)


NO = flags(0, 0, 0)
REWARD, VALUE, NEXT_VALUE = column(1, 2, 3), column(10, 20, 30), column(20, 30, 40)


def test_gae_within_one_episode():
    # deltas: 1 + 10 - 10 = 1; 2 + 15 - 20 = -3; 3 + 20 - 30 = -7
    # backwards, times 0.25: -7; -3 - 1.75 = -4.75; 1 - 1.1875 = -0.1875
    advantage, returns = gae(REWARD, VALUE, NEXT_VALUE, NO, NO, GAMMA, LAM)
    assert_column(advantage, -0.1875, -4.75, -7)
    assert_column(returns, 9.8125, 15.25, 23)


def test_gae_of_a_truncated_episode_bootstraps_from_its_final_observation():
    # the episode ends after row 1, whose final observation is worth 100, not row 2's 30
    # deltas: 1; 2 + 50 - 20 = 32; -7. Nothing flows from row 2: 32; 1 + 0.25 * 32 = 9
    next_value = column(20, 100, 40)
    advantage, _ = gae(REWARD, VALUE, next_value, NO, flags(0, 1, 0), GAMMA, LAM)
    assert_column(advantage, 9, 32, -7)


def test_gae_of_a_terminated_episode_does_not_bootstrap():
    # deltas: 1; 2 - 20 = -18; -7. Backwards: -7; -18; 1 - 4.5 = -3.5
    next_value = column(20, float("nan"), 40)  # whatever the network says there is not read
    advantage, _ = gae(REWARD, VALUE, next_value, flags(0, 1, 0), flags(0, 1, 0), GAMMA, LAM)
    assert_column(advantage, -3.5, -18, -7)


def test_gae_in_the_last_row_ends_or_bootstraps():
    # terminated: 3 - 30 = -27; truncated: as if it went on, -7
    assert gae(REWARD, VALUE, NEXT_VALUE, flags(0, 0, 1), flags(0, 0, 1), GAMMA, LAM)[0][-1].item() == -27
    assert gae(REWARD, VALUE, NEXT_VALUE, NO, flags(0, 0, 1), GAMMA, LAM)[0][-1].item() == -7


def test_gae_with_lambda_0_is_the_td_error_and_with_1_the_return():
    assert_column(gae(REWARD, VALUE, NEXT_VALUE, NO, NO, GAMMA, 0.0)[0], 1, -3, -7)
    ended, terminated = flags(0, 1, 0), flags(0, 1, 0)
    full = gae(REWARD, VALUE, NEXT_VALUE, terminated, ended, GAMMA, 1.0)[1]
    assert_column(full, *discounted_return(REWARD, NEXT_VALUE, terminated, ended, GAMMA)[:, 0].tolist())


def test_environments_side_by_side_do_not_touch():
    both = [np.concatenate([x, x[::-1]], 1) for x in (REWARD, VALUE, NEXT_VALUE)]
    ended = np.concatenate([NO, flags(0, 1, 0)], 1)
    advantage, _ = gae(*both, ended, ended, GAMMA, LAM)
    assert_column(advantage[:, :1], -0.1875, -4.75, -7)
    # second env, terminated in row 1. deltas: 3 + 20 - 30 = -7; 2 - 20 = -18; 1 + 10 - 10 = 1
    # backwards: 1; -18; -7 - 4.5 = -11.5
    assert_column(advantage[:, 1:], -11.5, -18, 1)


def test_discounted_return_bootstraps_where_the_rollout_is_cut_only():
    # last row 3 + 0.5 * 40 = 23; 2 + 11.5 = 13.5; 1 + 6.75 = 7.75: the next values 20 and 30 do not count
    assert_column(discounted_return(REWARD, NEXT_VALUE, NO, NO, GAMMA), 7.75, 13.5, 23)
    # truncated after row 1, worth 30: 2 + 15 = 17; 1 + 8.5 = 9.5
    assert_column(discounted_return(REWARD, NEXT_VALUE, NO, flags(0, 1, 0), GAMMA), 9.5, 17, 23)
    # terminated after rows 1 and 2: 3; 2; 1 + 1 = 2
    ended = flags(0, 1, 1)
    assert_column(discounted_return(REWARD, NEXT_VALUE, ended, ended, GAMMA), 2, 2, 3)


def test_vtrace_on_policy_is_the_bootstrapped_return():
    # equal policies: rho = c = 1, so vs is the discounted return with the last row's bootstrap
    log_prob = column(-1, -2, -3)
    vs, advantage = vtrace(log_prob, log_prob, REWARD, VALUE, NEXT_VALUE, NO, NO, GAMMA)
    assert_column(vs, 7.75, 13.5, 23)
    # r + 0.5 vs' - V: 1 + 6.75 - 10; 2 + 11.5 - 20; 3 + 20 - 30
    assert_column(advantage, -2.25, -6.5, -7)


def test_vtrace_clips_the_importance_ratios():
    # ratios 0.5, 2, 4; rho_bar 3: rho 0.5, 2, 3; c_bar 1: c 0.5, 1, 1
    # rho * delta: 0.5 * 1 = 0.5; 2 * -3 = -6; 3 * -7 = -21
    # vs - V backwards: -21; -6 + 0.5 * 1 * -21 = -16.5; 0.5 + 0.5 * 0.5 * -16.5 = -3.625
    ratio = column(0.5, 2, 4)
    vs, advantage = vtrace(
        np.log(ratio), np.zeros((3, 1)), REWARD, VALUE, NEXT_VALUE, NO, NO, GAMMA, rho_bar=3.0, c_bar=1.0
    )
    assert_column(vs, 6.375, 3.5, 9)
    # rho * (r + 0.5 vs' - V): 0.5 * (1 + 1.75 - 10); 2 * (2 + 4.5 - 20); 3 * (3 + 20 - 30)
    assert_column(advantage, -3.625, -27, -21)


def test_vtrace_keeps_episodes_apart():
    # truncated after row 0 (worth 20) and terminated after row 1; on-policy
    # vs: row 2: 23; row 1: 2; row 0: 1 + 0.5 * 20 = 11
    log_prob = column(0, 0, 0)
    vs, advantage = vtrace(log_prob, log_prob, REWARD, VALUE, NEXT_VALUE, flags(0, 1, 0), flags(1, 1, 0), GAMMA)
    assert_column(vs, 11, 2, 23)
    assert_column(advantage, 1, -18, -7)  # vs - V, since rho is 1 and each episode here is one row


def test_a_long_rollout_is_the_same_as_its_rows_one_by_one():
    # Each step pays 1, the episode ends every 7 steps, and nothing is worth anything afterwards: the k-th step before an
    # end returns 1 + 0.5 + ... = 2 - 0.5^k.
    length = 4 * SHORT + 3
    reward, nothing = np.ones((length, 1)), np.zeros((length, 1))
    ended = flags(*((t + 1) % 7 == 0 or t == length - 1 for t in range(length)))
    steps_left = [next(k for k in range(1, 8) if ended[t + k - 1, 0]) for t in range(length)]
    expected = [2 - 0.5 ** (k - 1) for k in steps_left]
    assert_column(discounted_return(reward, nothing, ended, ended, GAMMA), *expected)
    assert_column(gae(reward, nothing, nothing, ended, ended, GAMMA, 1.0)[0], *expected)


def test_inputs_are_left_alone_and_float32_stays():
    given = [x.astype(np.float32) for x in (REWARD, VALUE, NEXT_VALUE)]
    before = [x.copy() for x in given]
    reward, value, next_value = given
    outputs = (
        *gae(reward, value, next_value, NO, NO, GAMMA, LAM),
        *vtrace(np.zeros_like(reward), np.zeros_like(reward), reward, value, next_value, NO, NO, GAMMA),
        discounted_return(reward, next_value, NO, NO, GAMMA),
    )
    assert {x.dtype for x in outputs} == {np.dtype(np.float32)}
    assert all(map(np.array_equal, given, before))
