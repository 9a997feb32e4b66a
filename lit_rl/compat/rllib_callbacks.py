"""RLlib's ``callbacks``: functions of one ``info`` dict, as hooks of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lit_rl.algorithms import import_object
from lit_rl.compat.rllib_results import result_of
from lit_rl.data.hooks import HookedEpisode, Hooks
from lit_rl.data.transitions import Steps
from lit_rl.errors import UsageError

Callback = Callable[[dict[str, Any]], Any]
AGENT = "agent0"


class Episode:
    """An episode with RLlib's names; everything else is :class:`HookedEpisode`'s."""

    def __init__(self, episode: HookedEpisode) -> None:
        self._episode = episode

    def __getattr__(self, name: str) -> Any:
        return getattr(self._episode, name)

    @property
    def total_reward(self) -> float:
        """Undiscounted rewards so far."""
        return self._episode.return_

    @property
    def episode_id(self) -> int:
        """A number that this episode alone has."""
        return id(self._episode)

    def last_observation_for(self, agent_id: str = AGENT) -> Any:
        """The newest observation."""
        return self._episode.obs

    def last_action_for(self, agent_id: str = AGENT) -> Any:
        """The newest action."""
        return self._episode.action

    def last_info_for(self, agent_id: str = AGENT) -> dict[str, Any]:
        """The newest info."""
        return self._episode.info


class Callbacks(Hooks):
    """Calls functions, or what import paths (``my_pkg.callbacks:on_end``) stand for, as RLlib does.

    Raises:
        UsageError: one of them cannot be imported or called.
    """

    def __init__(self, **functions: Callback | str) -> None:
        self._functions: dict[str, Callback] = {}
        self._env_steps = 0  # at the last result
        for name, function in functions.items():
            found: Any = import_object(function, f"callbacks: {name}") if isinstance(function, str) else function
            if not callable(found):
                raise UsageError(f"callbacks: {name} {function} is no function")
            self._functions[name] = found

    def _call(self, name: str, **info: Any) -> None:
        if name in self._functions:
            self._functions[name](info)

    def _told(self, name: str, episode: HookedEpisode) -> None:
        if name in self._functions:
            envs = getattr(episode._envs, "envs", None)
            self._functions[name]({"env": None if envs is None else episode.env, "episode": Episode(episode)})

    def on_episode_start(self, episode: HookedEpisode) -> None:
        self._told("on_episode_start", episode)

    def on_episode_step(self, episode: HookedEpisode) -> None:
        self._told("on_episode_step", episode)

    def on_episode_end(self, episode: HookedEpisode) -> None:
        self._told("on_episode_end", episode)

    def on_sample_end(self, steps: Steps) -> None:
        self._call("on_sample_end", samples=steps, worker=None)

    def on_postprocess_traj(self, steps: Steps, batch: Any) -> None:
        self._call(
            "on_postprocess_traj",
            agent_id=AGENT,
            episode=None,
            pre_batch=(None, steps),
            post_batch=batch,
            all_pre_batches={AGENT: (None, steps)},
        )

    def on_train_result(self, result: dict[str, Any]) -> None:
        if "on_train_result" not in self._functions:
            return
        theirs = result_of(result, self._env_steps)
        self._env_steps = result["env_steps"]
        before = dict(theirs)
        self._call("on_train_result", trainer=None, result=theirs)
        result |= {name: value for name, value in theirs.items() if name not in before}
