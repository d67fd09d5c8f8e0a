"""Train agents of reinforcement learning and compare them with the policies of the package.

    python -m venv .venv-rl
    .venv-rl/bin/pip install torch==2.13.0        # first, a CPU build
    .venv-rl/bin/pip install stable-baselines3==2.9.2 sb3-contrib==2.9.2
    .venv-rl/bin/pip install -c constraints.txt -e '.[gym]'
    .venv-rl/bin/python studies/reinforcement_learning.py NIST=TRACE      # half an hour of processor time
    .venv-rl/bin/python studies/reinforcement_learning.py --trials        # how the settings were chosen
    .venv-rl/bin/python studies/reinforcement_learning.py --quick         # checks that the study works; writes nothing

PyTorch and stable-baselines3 are installed for this study only. TRACE is a trace file of the recording NIST of
docs/explanation/recordings.md; without it the agents are trained in S1 and S4 only.

Agents are trained by PPO before the test. In the test their weights are frozen, and they play the channels that they
rank first. Policies are given no training: they learn during the test. Agents and policies play the same sample paths,
of a seed that no training used. In S1 and S4 these are 20 replications of 10^4 slots; theta is drawn anew for each
replication, in training and in the test. On the recording agents are trained on the first 60% of the slots, and the
test is on the rest, from 20 starting points.

Actions are drawn without replacement: the first channel with probabilities proportional to exp(score), the second in
the same way from the others, and so forth. The agents differ in the network that computes the scores:

ppo-mlp           a network of 64 and 64 units, of all features of all channels (see agent_environment.py)
ppo-shared        one network for every channel: of its features, a learned vector that stands for the channel, and the
                  mean of a hidden layer over all channels
ppo-lstm          the same with the output of an LSTM, which reads a summary of each slot, and the scalar product of a
                  linear function of that output with the context of the channel
ppo-regression    ppo-shared with one more feature, the perturbation predicted by a linear regression in the episode

Writes reinforcement_learning.md beside this file and a figure into docs/figures. Finished parts are kept in
results/reinforcement-learning, from which an interrupted study continues.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from agent_environment import AgentEnvironment
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

import idleband as ib
from idleband.arrays import Floats
from idleband.experiments.study import Study
from idleband.reporting.plots import COLOURS
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.simulation.blocks import block_samples
from idleband.simulation.path import checkpoints
from idleband.simulation.statistics import Samples

HERE = Path(__file__).parent
OUT = Path(__file__).with_suffix(".md")
STORED = HERE.parent / "results/reinforcement-learning"
SLOTS = {
    "ppo-mlp": 3_000_000,
    "ppo-shared": 3_000_000,
    "ppo-lstm": 1_500_000,
    "ppo-regression": 3_000_000,
}  # of training in S1 and S4
RECORDING_SLOTS = {"ppo-mlp": 400_000, "ppo-shared": 320_000, "ppo-lstm": 200_000}
HORIZON, REPLICATIONS = 10_000, 20  # of the test
EARLY = (100, 1000)  # slots at the beginning that the table shows
TRAINED_SHARE = 0.6  # of a recording
RECORDING_USERS = 10
LINES = ("mp-belief-lucb", "mp-adaptive", "mp-belief", "mp-stay", "mp-ucb", "mp-random")  # of the figure
EPISODE = 1000  # slots, in training
COPIES, STEPS = 128, 64  # slots between two updates
CURVE_COPIES, CURVE_SLOTS = 40, 1000
CURVE_POINTS = [2**i * COPIES * STEPS for i in range(10)]  # training slots after which the curve has a point
TRAINING, TRIALS, CURVES, TEST = 101, 102, 103, 104  # seeds
SETTINGS = {"gamma": 0.5, "learning_rate": 3e-3, "gae_lambda": 0.9, "batch_size": 1024, "n_epochs": 4, "ent_coef": 0.0}
POLICIES = (
    "oracle-belief", "mp-belief-lucb", "mp-belief-nucb", "mp-adaptive-lucb", "mp-belief", "mp-adaptive", "mp-stay",
    "mp-lbt", "whittle-q", "mp-lucb", "mp-ucb", "mp-ts", "rca-m", "mp-random",
)  # fmt: skip
WITHOUT_CONTEXTS = tuple(name for name in POLICIES if name not in (
    "oracle-belief", "mp-belief-lucb", "mp-belief-nucb", "mp-adaptive-lucb", "mp-lucb"
))  # fmt: skip


# --- networks --------------------------------------------------------------------------------------------------------


class Ranking(Distribution):
    """M of K channels in order, drawn without replacement with probabilities proportional to exp(score)."""

    def __init__(self, M: int) -> None:
        super().__init__()
        self.M = M

    def proba_distribution_net(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def proba_distribution(self, scores: torch.Tensor) -> "Ranking":
        self.scores = scores
        return self

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        picks = actions.long()
        chosen = self.scores.gather(1, picks)
        rest = self.scores.scatter(1, picks, -1e9).logsumexp(1, keepdim=True)
        remaining = torch.logcumsumexp(torch.cat([rest, chosen.flip(1)], 1), 1)[:, 1:]
        return chosen.sum(1) - remaining.sum(1)

    def entropy(self) -> torch.Tensor:
        """Return the entropy of the first channel; that of the order has no closed form."""
        return torch.distributions.Categorical(logits=self.scores).entropy()

    def sample(self) -> torch.Tensor:
        uniform = torch.rand_like(self.scores).clamp(1e-12, 1.0 - 1e-7)
        return (self.scores - (-uniform.log()).log()).topk(self.M, 1).indices

    def mode(self) -> torch.Tensor:
        return self.scores.topk(self.M, 1).indices

    def actions_from_params(self, scores: torch.Tensor, deterministic: bool = False) -> torch.Tensor:
        return self.proba_distribution(scores).get_actions(deterministic)

    def log_prob_from_params(self, scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        actions = self.actions_from_params(scores)
        return actions, self.log_prob(actions)


class Shape(NamedTuple):
    """Sizes of an agent's observation and action."""

    K: int
    M: int
    features: int  # of a channel
    dimension: int  # of contexts, which are the last features but those of the regression; 0: none
    summary: int = 0  # entries after the features, for an LSTM
    hidden: int = 0  # units of the LSTM
    identity: int = 8  # entries of the vector that stands for a channel


class Scorer(nn.Module):
    """One network that scores every channel, and a value of all channels together."""

    WIDTH = 32

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.latent_dim_pi, self.latent_dim_vf = shape.K, self.WIDTH
        width, added = self.WIDTH, 0
        if shape.hidden:
            self.state = nn.Linear(shape.hidden, 8)
            self.query = nn.Linear(shape.hidden, shape.dimension) if shape.dimension else None
            added = 8 + (1 if shape.dimension else 0)
        self.channel = nn.Parameter(0.1 * torch.randn(shape.K, shape.identity))
        self.first = nn.Linear(shape.features + shape.identity + added, width)
        self.second = nn.Linear(2 * width, width)
        self.score = nn.Linear(width, 1)
        self.value = nn.Linear(width, width)

    def _layers(self, latent: torch.Tensor) -> torch.Tensor:
        shape, N = self.shape, len(latent)
        x = latent[:, : shape.K * shape.features].reshape(N, shape.K, shape.features)
        parts = [x, self.channel.expand(N, -1, -1)]
        if shape.hidden:
            memory = latent[:, -shape.hidden :]
            parts.append(self.state(memory)[:, None].expand(-1, shape.K, -1))
            if self.query is not None:
                contexts = x[:, :, -shape.dimension :]
                parts.append(torch.einsum("nkd,nd->nk", contexts, self.query(memory))[:, :, None])
        h = torch.tanh(self.first(torch.cat(parts, 2)))
        return torch.tanh(self.second(torch.cat([h, h.mean(1, keepdim=True).expand_as(h)], 2)))

    def forward_actor(self, latent: torch.Tensor) -> torch.Tensor:
        return self.score(self._layers(latent))[:, :, 0]

    def forward_critic(self, latent: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.value(self._layers(latent).mean(1)))

    def forward(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layers = self._layers(latent)
        return self.score(layers)[:, :, 0], torch.tanh(self.value(layers.mean(1)))


class RankingPolicy(ActorCriticPolicy):
    """Ranks channels; with a shape by one network for all channels, else by a plain one."""

    def __init__(self, *arguments: Any, users: int, shape: Shape | None = None, **settings: Any) -> None:
        self.users, self.shape = users, shape
        super().__init__(*arguments, **settings)

    def _build(self, lr_schedule: Any) -> None:
        if self.shape is None:
            self._build_mlp_extractor()
        else:
            self.mlp_extractor = Scorer(self.shape)
        self.action_dist = Ranking(self.users)
        K = int(self.action_space.nvec[0])
        self.action_net = nn.Identity() if self.shape else nn.Linear(self.mlp_extractor.latent_dim_pi, K)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        if self.ortho_init:
            gains = {self.mlp_extractor: 2**0.5, self.action_net: 0.01, self.value_net: 1.0}
            for module, gain in gains.items():
                module.apply(lambda one, gain=gain: self.init_weights(one, gain))
            if self.shape:
                self.init_weights(self.mlp_extractor.score, 0.1)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Distribution:
        return self.action_dist.proba_distribution(self.action_net(latent_pi))


class RecurrentRankingPolicy(RankingPolicy, RecurrentActorCriticPolicy):
    """An LSTM reads the summary; the scorer reads its output and the features."""

    def __init__(self, *arguments: Any, shape: Shape, **settings: Any) -> None:
        super().__init__(
            *arguments,
            shape=shape,
            lstm_hidden_size=shape.hidden,
            shared_lstm=True,
            enable_critic_lstm=False,
            **settings,
        )
        self.lstm_actor = nn.LSTM(shape.summary, shape.hidden)
        schedule, self.critic = arguments[2], None
        self.optimizer = self.optimizer_class(self.parameters(), lr=schedule(1), **self.optimizer_kwargs)

    @staticmethod
    def _process_sequence(features: Any, lstm_states: Any, episode_starts: Any, lstm: nn.LSTM) -> Any:
        kept, summary = features[:, : -lstm.input_size], features[:, -lstm.input_size :]
        found, states = RecurrentActorCriticPolicy._process_sequence(summary, lstm_states, episode_starts, lstm)
        return torch.cat([kept, found], 1), states


# --- training --------------------------------------------------------------------------------------------------------


class Copies(VecEnv):
    """`AgentEnvironment` for stable-baselines3; rewards are scaled to about -1 to 1."""

    def __init__(self, environment: AgentEnvironment, recurrent: bool, form: str = "ranking") -> None:
        self.environment, self.recurrent, self.form = environment, recurrent, form
        K, M = environment.scenario.K, environment.scenario.users
        size = K * environment.size + (environment.summary_size if recurrent else 0)
        form_spaces = {
            "ranking": spaces.MultiDiscrete([K] * M),
            "scores": spaces.Box(-1.0, 1.0, (K,), np.float32),
            "channels": spaces.MultiBinary(K),
        }
        super().__init__(environment.copies, spaces.Box(-np.inf, np.inf, (size,), np.float32), form_spaces[form])
        self._infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._over = np.zeros(self.num_envs, np.bool_)

    def row(self, features: Floats, summary: Floats) -> Any:
        """Return observations as flat rows."""
        flat = features.reshape(self.num_envs, -1)
        return np.concatenate([flat, summary], axis=1) if self.recurrent else flat

    def reset(self) -> Any:
        return self.row(self.environment.reset(), self.environment.summary)

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        found, M = self.environment.step(self.played(self._actions)), self.environment.scenario.users
        rewards = ((found.rewards / M - 0.5 * (LOW + HIGH)) / (0.5 * (HIGH - LOW))).astype(np.float32)
        row = self.row(found.features, self.environment.summary)
        if found.last is None:
            return row, rewards, self._over, self._infos
        last = self.row(*found.last)
        infos = [{"terminal_observation": one, "TimeLimit.truncated": True} for one in last]
        return row, rewards, ~self._over, infos

    def played(self, actions: Any) -> Any:
        """Return actions as the environment reads them."""
        if self.form != "ranking":
            return actions
        chosen = np.zeros((self.num_envs, self.environment.scenario.K), np.int8)
        np.put_along_axis(chosen, actions.astype(np.int64), 1, axis=1)
        return chosen

    def close(self) -> None:
        self.environment.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None if attr_name == "render_mode" else getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *arguments: Any, indices: Any = None, **settings: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Problem(NamedTuple):
    """A scenario to train in and one to test in; they differ on a recording only."""

    name: str
    training: Scenario
    test: Scenario
    agents: dict[str, int]  # training slots
    policies: tuple[str, ...]
    reference: str  # policy with which all are compared

    @property
    def horizon(self) -> int:
        """Slots of a replication of the test."""
        return HORIZON if self.test.recording is None else min(HORIZON, self.test.recording.T)


def copies_of(scenario: Scenario, agent: str, count: int, horizon: int, seed: int, form: str = "ranking") -> Copies:
    """Return the copies that an agent observes."""
    played = "scores" if form == "scores" else "channels"
    environment = AgentEnvironment(scenario, count, horizon, seed, played, agent == "ppo-regression")
    return Copies(environment, agent == "ppo-lstm", form)


def new_agent(agent: str, copies: Copies, seed: int, **changed: Any) -> Any:
    """Return an untrained agent."""
    settings = {"n_steps": STEPS, "seed": seed, "device": "cpu", **SETTINGS, **changed}
    rate = settings.pop("learning_rate")
    settings["learning_rate"] = lambda left: rate * left
    environment = copies.environment
    K, M = environment.scenario.K, environment.scenario.users
    shape = Shape(K, M, environment.size, environment.scenario.dimension if environment.contextual else 0)
    if copies.form != "ranking":
        return PPO("MlpPolicy", copies, **settings)
    if agent == "ppo-mlp":
        return PPO(RankingPolicy, copies, policy_kwargs={"users": M}, **settings)
    if agent == "ppo-lstm":
        shape = shape._replace(summary=environment.summary_size, hidden=32)
        return RecurrentPPO(RecurrentRankingPolicy, copies, policy_kwargs={"users": M, "shape": shape}, **settings)
    return PPO(RankingPolicy, copies, policy_kwargs={"users": M, "shape": shape}, **settings)


def play(model: Any, copies: Copies, slots: int) -> Floats:
    """Return the reward of every slot of every copy, shape (N, slots), with the channels that are ranked first."""
    observations, states = copies.reset(), None
    starts, earned = np.ones(copies.num_envs, np.bool_), np.empty((copies.num_envs, slots))
    for t in range(slots):
        actions, states = model.predict(observations, state=states, episode_start=starts, deterministic=True)
        starts = np.zeros(copies.num_envs, np.bool_)
        found = copies.environment.step(copies.played(actions))
        observations, earned[:, t] = copies.row(found.features, copies.environment.summary), found.rewards
    copies.close()
    return earned


class Curve(BaseCallback):
    """Plays a few replications now and then; the time that takes does not count as training."""

    def __init__(self, agent: str, scenario: Scenario, at: list[int], form: str) -> None:
        super().__init__()
        self.agent, self.scenario, self.at, self.form = agent, scenario, at, form
        self.points: list[tuple[int, float]] = []
        self.paused_cpu = self.paused_wall = 0.0

    def _measure(self) -> None:
        cpu, wall = process_time(), perf_counter()
        slots = min(CURVE_SLOTS, self.scenario.recording.T if self.scenario.recording else CURVE_SLOTS)
        copies = copies_of(self.scenario, self.agent, CURVE_COPIES, slots, CURVES, self.form)
        reward = float(play(self.model, copies, slots).mean())
        self.points.append((self.num_timesteps, reward))
        print(f"  {self.num_timesteps:,} slots: {reward:.4f}", flush=True)
        self.paused_cpu += process_time() - cpu
        self.paused_wall += perf_counter() - wall

    def _on_training_start(self) -> None:
        self._measure()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps in self.at:
            self._measure()

    def _on_training_end(self) -> None:
        self._measure()

    def _on_step(self) -> bool:
        return True


def train(
    problem: Problem,
    agent: str,
    slots: int,
    seed: int,
    form: str = "ranking",
    points: Sequence[int] = (),
    **changed: Any,
) -> tuple[Any, dict[str, Any]]:
    """Return a trained agent, and what the training took."""
    scenario = problem.training
    copies = copies_of(scenario, agent, COPIES, min(EPISODE, getattr(scenario.recording, "T", EPISODE)), seed, form)
    model = new_agent(agent, copies, seed, **changed)
    curve = Curve(agent, problem.test, [at for at in points if at < slots], form)
    cpu, wall = process_time(), perf_counter()
    model.learn(slots, callback=curve)
    facts = {
        "slots": model.num_timesteps,
        "cpu": process_time() - cpu - curve.paused_cpu,
        "wall": perf_counter() - wall - curve.paused_wall,
        "parameters": sum(one.numel() for one in model.policy.parameters()),
        "curve": curve.points,
    }
    return model, facts


# --- trials ----------------------------------------------------------------------------------------------------------

SHOWN = {"gamma", "learning_rate"}
TRIAL_SLOTS = 300_000
FIRST_GUESS = {"learning_rate": 1e-3}  # instead of SETTINGS
TRIED: tuple[tuple[str, str, str, dict[str, float]], ...] = (
    # scenario, agent, form of the action, settings that differ from the first guess
    ("S1", "ppo-mlp", "ranking", {}),
    ("S1", "ppo-mlp", "scores", {}),
    ("S1", "ppo-mlp", "channels", {}),
    *(
        (name, "ppo-shared", "ranking", changed)
        for name in ("S1", "S4")
        for changed in ({}, {"gamma": 0.0}, {"gamma": 0.9}, {"gamma": 0.99}, {"learning_rate": 3e-4})
    ),
    ("S4", "ppo-shared", "ranking", {"learning_rate": 3e-3}),
    ("S4", "ppo-shared", "ranking", {"ent_coef": 0.01}),
)  # fmt: skip


def trials() -> list[str]:
    """Return a table of short trainings, with a seed of their own, played on the paths of the curves."""
    lines = ["| scenario | agent | action | settings | reward per slot |", "|---|---|---|---|---|"]
    for name, agent, form, changed in TRIED:
        settings = FIRST_GUESS | changed
        scenario = ib.scenario(name)
        problem = Problem(name, scenario, scenario, {}, (), "")
        facts = train(problem, agent, TRIAL_SLOTS, TRIALS, form, **settings)[1]
        text = ", ".join(
            f"{key} = {value:g}" for key, value in (SETTINGS | settings).items() if key in SHOWN | set(changed)
        )
        lines.append(f"| {name} | {agent} | {form} | {text} | {facts['curve'][-1][1]:.3f} |")
        print(lines[-1], flush=True)
    return lines


# --- the test --------------------------------------------------------------------------------------------------------


def samples_of(problem: Problem, t: Any, curve: Floats, at: int = -1) -> Samples:
    """Return rewards per slot, one for each replication, or for each block of a recording."""
    if problem.test.recording is None:
        return Samples(curve[:, at] / t[at], len(curve))
    return block_samples(problem.test.recording, t, curve)


def trained(problem: Problem, agent: str, slots: int, quick: bool) -> dict[str, Any]:
    """Return what the training of an agent took, and its rewards in the test; stored results are not made again."""
    file = STORED / f"{problem.name}-{agent}.json"
    if file.exists() and not quick:
        found: dict[str, Any] = json.loads(file.read_text())
        return found
    print(f"{problem.name}: {agent}", flush=True)
    model, facts = train(problem, agent, slots, TRAINING, points=() if quick else CURVE_POINTS)
    horizon, count = problem.horizon, REPLICATIONS
    earned = play(model, copies_of(problem.test, agent, count, horizon, TEST), horizon)
    facts["earned"] = np.cumsum(earned, axis=1)[:, checkpoints(horizon, problem.test.recording) - 1].tolist()
    if problem.test.recording is not None:
        T = problem.training.recording.T
        facts["training part"] = float(play(model, copies_of(problem.training, agent, count, T, TEST), T).mean())
    if not quick:
        STORED.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts))
    return facts


def rows_of(problem: Problem, study: Study, agents: dict[str, dict[str, Any]]) -> list[str]:
    """Return the rows of a scenario, the largest reward first."""
    t = study.results[0].t
    curves = {label: study[label].reward for label in study.labels}
    curves |= {agent: np.array(facts["earned"]) for agent, facts in agents.items()}
    samples = {label: samples_of(problem, t, curve) for label, curve in curves.items()}
    rows = []
    for label in sorted(samples, key=lambda label: -samples[label].mean):
        reward = samples[label].interval()
        cells = [problem.name, label, f"{reward.mean:.3f} ±{reward.half_width:.3f}"]
        behind = (samples[label] - samples[problem.reference]).interval()
        cells.append("" if label == problem.reference else f"{behind.mean:+.3f} ±{behind.half_width:.3f}")
        for slots in EARLY:
            at = int(np.searchsorted(t, slots))
            cells.append(f"{curves[label][:, at].mean() / t[at]:.3f}" if at < len(t) and t[at] == slots else "")
        if label in agents:
            facts = agents[label]
            cells += [f"{facts['slots'] / 1e6:.2f} million", f"{facts['cpu'] / 60:.1f} / {facts['wall'] / 60:.0f}"]
            cells.append(f"{facts['parameters']:,}")
        else:
            cells += ["0", "", ""]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def figure(problems: Sequence[Problem], agents: dict[str, dict[str, dict[str, Any]]]) -> Any:
    """Return the figure of rewards against training slots."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(4.4 * len(problems), 4.2), dpi=150, layout="constrained")
    for i, problem in enumerate(problems):
        axes = made.add_subplot(1, len(problems), i + 1)
        horizon = min(CURVE_SLOTS, problem.horizon)
        lines = [name for name in LINES if name in problem.policies]
        study = ib.compare(problem.test, lines, horizon=horizon, replications=CURVE_COPIES, seed=CURVES)
        for name, dash in zip(lines, ("--", "-.", ":", (0, (1, 4))), strict=False):
            reward = float(study[name].reward[:, -1].mean()) / horizon
            axes.axhline(reward, color="0.35", linewidth=1.0, linestyle=dash, label=name)
        for agent, facts in agents[problem.name].items():
            slots, rewards = zip(*facts["curve"][1:], strict=True)
            colour = COLOURS[list(SLOTS).index(agent)]
            axes.plot(slots, rewards, color=colour, linewidth=1.6, marker="o", markersize=3, label=agent)
        axes.set_xscale("log")
        axes.set_title(problem.name, fontsize=10)
        axes.set(xlabel="training slots", ylabel=f"reward per slot, {horizon:,} slots")
        axes.grid(True, color="0.93")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(framealpha=0.9, edgecolor="none", fontsize=7.5, loc="lower right")
    return made


# --- the study -------------------------------------------------------------------------------------------------------


def problem_of(argument: str) -> Problem:
    """Return the problem of an argument: a preset, or NAME=TRACE."""
    name, _, file = argument.partition("=")
    if not file:
        scenario = ib.scenario(name)
        return Problem(name, scenario, scenario, SLOTS, POLICIES, "mp-belief-lucb")
    trace = ib.Trace.load(file)
    cut = round(TRAINED_SHARE * trace.T)
    parts = [ib.scenario(trace.select(slots=part), users=RECORDING_USERS) for part in ((0, cut), (cut, trace.T))]
    return Problem(name, parts[0], parts[1], RECORDING_SLOTS, WITHOUT_CONTEXTS, "mp-adaptive")


def main() -> None:
    global HORIZON, REPLICATIONS, COPIES, CURVE_COPIES, CURVE_SLOTS
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    if arguments == ["--trials"]:
        OUT.with_stem("reinforcement_learning-trials").write_text("\n".join(trials()) + "\n")
        return
    quick = arguments == ["--quick"]
    if quick:
        HORIZON, REPLICATIONS, COPIES, CURVE_COPIES, CURVE_SLOTS = 200, 3, 8, 2, 50
    named = [] if quick else [one for one in arguments if "=" not in one]
    recordings = [] if quick else [one for one in arguments if "=" in one]
    problems = [problem_of(one) for one in (*(["S1"] if quick else named or ["S1", "S4"]), *recordings)]
    lines = [
        "| scenario | policy or agent | reward per slot | minus the reference | first 100 slots |"
        " first 1,000 slots | training slots | training, minutes of CPU / wall | parameters |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    agents: dict[str, dict[str, dict[str, Any]]] = {}
    for problem in problems:
        agents[problem.name] = {
            agent: trained(problem, agent, 1000 if quick else slots, quick) for agent, slots in problem.agents.items()
        }
        policies = problem.policies[:3] if quick else problem.policies
        study = ib.compare(problem.test, policies, horizon=problem.horizon, replications=REPLICATIONS, seed=TEST)
        lines += rows_of(problem, study, agents[problem.name])
    print("\n".join(lines))
    if quick:
        return
    OUT.write_text("\n".join(lines) + "\n")
    figure(problems, agents).savefig(HERE.parent / "docs/figures/reinforcement-learning.png")


if __name__ == "__main__":
    main()
