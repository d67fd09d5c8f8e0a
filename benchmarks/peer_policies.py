"""Policies and simulations of other bandit libraries, in the form that benchmarks/peers.py measures.

A policy that is fed is a function of (K, M, d) that returns `select(t, x)`, the M picks in slot t for contexts x of
shape (K, d), and `learn(picks, x, h, r, n)` with these contexts and the state rewards, rewards and perturbations of the
picks.
A simulation is a function of a seed that returns slots, seconds, and the reward per slot of each replication. Where a
library offers no selection of several channels, the M largest of its indices are taken here. Each library is imported
by the function that needs it.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import numpy as np
from numpy_reference import top

Policy = tuple[Callable[[int, np.ndarray], np.ndarray], Callable[..., None]]
Simulation = Callable[[int], tuple[int, float, np.ndarray]]
MANY = 1000  # seeds from here on ask for more replications, to compare rewards


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what a library prints and warns of off the terminal."""
    sink = io.StringIO()
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# --- SMPyBandits -----------------------------------------------------------------------------------------------------


def import_smpybandits() -> None:
    """Import SMPyBandits, of 2019, after restoring two functions that newer SciPy and NumPy have renamed."""
    import scipy.special

    vars(scipy.special).setdefault("btdtri", scipy.special.betaincinv)
    vars(np).setdefault("in1d", np.isin)
    with quiet():
        import SMPyBandits.Environment
        import SMPyBandits.Policies  # noqa: F401


def smpybandits_ucb(K: int, M: int, d: int) -> Policy:
    """UCBalpha with alpha = 3 has the index of mp-ucb with L = 1.5; its clock is set, because it counts plays."""
    import_smpybandits()
    from SMPyBandits.Policies.UCBalpha import UCBalpha

    policy = UCBalpha(K, alpha=3)
    policy.startGame()

    def select(t: int, x: np.ndarray) -> np.ndarray:
        policy.t = t
        return policy.choiceMultiple(M)

    def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        for k, reward in zip(picks, r, strict=True):
            policy.getReward(k, reward)

    return select, learn


def smpybandits_simulation(idle: np.ndarray, M: int) -> Simulation:
    """EvaluatorMultiPlayers: one central UCBalpha plays for M users, on Bernoulli channels."""
    import_smpybandits()
    from SMPyBandits.Arms import Bernoulli
    from SMPyBandits.Environment.EvaluatorMultiPlayers import EvaluatorMultiPlayers
    from SMPyBandits.Policies.UCBalpha import UCBalpha
    from SMPyBandits.PoliciesMultiPlayers.CentralizedMultiplePlay import CentralizedMultiplePlay

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        T, R = 2000, 3 if seed < MANY else 40
        np.random.seed(seed)  # noqa: NPY002 - the library uses the global generator
        with quiet():
            evaluator = EvaluatorMultiPlayers(
                {
                    "horizon": T,
                    "repetitions": R,
                    "n_jobs": 1,
                    "verbosity": 0,
                    "environment": [{"arm_type": Bernoulli, "params": idle.tolist()}],
                    "players": CentralizedMultiplePlay(M, len(idle), UCBalpha, alpha=3).children,
                }
            )
            began = process_time()
            evaluator.startAllEnv()
            seconds = process_time() - began
        return R * T, seconds, evaluator.lastCumRewards[0] / T

    return run


# --- MABWiser --------------------------------------------------------------------------------------------------------


def mabwiser_ucb(K: int, M: int, d: int) -> Policy:
    """UCB1 with alpha^2 = 3/4 has the width of mp-ucb, except that its clock counts plays."""
    from mabwiser.mab import MAB, LearningPolicy

    policy = MAB(list(range(K)), LearningPolicy.UCB1(alpha=0.75**0.5))

    def select(t: int, x: np.ndarray) -> np.ndarray:
        if t * M <= K:  # it predicts after it was fitted, and a channel without data has the expectation 0
            return np.arange((t - 1) * M, t * M)
        expectations = policy.predict_expectations()
        return top(np.array([expectations[k] for k in range(K)]), M)

    def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        policy.partial_fit(picks, r)

    return select, learn


def mabwiser_linucb(K: int, M: int, d: int) -> Policy:
    """LinUCB: its contexts are common to all channels, so it predicts K by K values, of which the diagonal is used."""
    from mabwiser.mab import MAB, LearningPolicy

    policy = MAB(list(range(K)), LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    started = False

    def select(t: int, x: np.ndarray) -> np.ndarray:
        if not started:  # it predicts after it was fitted; all means are 0
            return top(np.sqrt((x * x).sum(axis=1)), M)
        expectations = policy.predict_expectations(x)
        return top(np.array([expectations[k][k] for k in range(K)]), M)

    def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        nonlocal started
        started = True
        policy.partial_fit(picks, r, x[picks])

    return select, learn


# --- pymab -----------------------------------------------------------------------------------------------------------


def pymab_linucb_indices(K: int, M: int, d: int) -> Policy:
    """The LinUCB of pymab's Python backend: the M largest of its upper_confidence_bounds."""
    from pymab._reference.policies.contextual_bandits import LinUCBPolicy

    policy = LinUCBPolicy(n_arms=K, n_features=d, alpha=1.0, l2=1.0)

    def select(t: int, x: np.ndarray) -> np.ndarray:
        return top(policy.upper_confidence_bounds(x), M)

    def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        for k, reward in zip(picks, r, strict=True):
            policy.update(action=int(k), reward=reward, context=x)

    return select, learn


def pymab_linucb(K: int, M: int, d: int) -> Policy:
    """LinUCBPolicy as pymab exports it, in Rust: one channel per slot."""
    from pymab.policies import LinUCBPolicy

    policy, rng = LinUCBPolicy(n_arms=K, n_features=d, alpha=1.0, l2=1.0), np.random.default_rng(0)

    def select(t: int, x: np.ndarray) -> np.ndarray:
        return np.array([policy.select_action(context=x, rng=rng)])

    def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
        policy.update(action=int(picks[0]), reward=float(r[0]), context=x)

    return select, learn


def pymab_simulation(K: int, d: int, backend: str) -> Simulation:
    """pymab's Experiment of LinUCB on its linear environment: normal contexts, independent normal rewards."""
    from pymab import Experiment, ExperimentConfig
    from pymab.distributions import GaussianReward
    from pymab.environments import GaussianContextProvider, LinearContextualEnvironment
    from pymab.policies import LinUCBPolicy

    environment = LinearContextualEnvironment(
        theta=np.random.default_rng(0).random((K, d)),
        context_provider=GaussianContextProvider(n_arms=K, n_features=d),
        reward_model=GaussianReward(std=0.1),
    )

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        T, R = 1000, 4
        experiment = Experiment(
            environment=environment,
            policies={"linucb": LinUCBPolicy(n_arms=K, n_features=d)},
            config=ExperimentConfig(horizon=T, n_replicates=R, seed=seed, backend=backend),
        )
        began = process_time()
        result = experiment.run()
        return R * T, process_time() - began, result.rewards.mean(axis=-1).ravel()

    return run


# --- coba ------------------------------------------------------------------------------------------------------------


def coba_simulation(learner: Callable[[], Any], paths: list[Any], contexts: bool) -> Simulation:
    """coba's SequentialCB on recorded slots: one channel per slot, chosen by number or by its context."""
    from coba.evaluators import SequentialCB
    from coba.primitives import Environment, SimulatedInteraction

    class Recorded(Environment):  # type: ignore[misc]
        def __init__(self, path: Any) -> None:
            self.slots = [
                ([tuple(row) for row in x] if contexts else list(range(len(r))), r)
                for x, r in zip(path.x.tolist(), path.r.tolist(), strict=True)
            ]

        @property
        def params(self) -> dict[str, Any]:
            return {}

        def read(self) -> Iterator[Any]:
            for actions, rewards in self.slots:
                yield SimulatedInteraction(None, actions, rewards)

    environments = [Recorded(path) for path in paths]

    def run(seed: int) -> tuple[int, float, np.ndarray]:
        chosen = environments if seed >= MANY else [environments[seed % len(environments)]]
        rewards = []
        began = process_time()
        for environment in chosen:
            evaluator = SequentialCB(record=["reward"])
            rewards.append([row["reward"] for row in evaluator.evaluate(environment, learner())])
        seconds = process_time() - began
        return sum(map(len, rewards)), seconds, np.array([np.mean(row) for row in rewards])

    return run


def coba_ucb() -> Any:
    from coba.learners import BanditUCBLearner

    return BanditUCBLearner()


def coba_epsilon() -> Any:
    from coba.learners import BanditEpsilonLearner

    return BanditEpsilonLearner(epsilon=0.05)


def coba_linucb() -> Any:
    from coba.learners import LinUCBLearner

    return LinUCBLearner(alpha=1.0, features=["a"])


# --- calvera ---------------------------------------------------------------------------------------------------------


def calvera_neural_ucb(train_every: int) -> Callable[[int, int, int], Policy]:
    """Return NeuralUCB with one network (d + 1, 16, 1) for all channels and a diagonal covariance.

    Every `train_every` slots the trainer of Lightning runs one step on 16 of the last 1,000 samples; 0: never.
    """

    def new(K: int, M: int, d: int) -> Policy:
        with quiet():
            import lightning.pytorch as lightning
            import torch
            from calvera.bandits import NeuralUCBBandit
            from calvera.utils.data_storage import SlidingWindowRetrievalStrategy, TensorDataBuffer
            from calvera.utils.selectors import TopKSelector
        for name in ("lightning.pytorch.utilities.rank_zero", "lightning.pytorch.accelerators.cuda"):
            logging.getLogger(name).setLevel(logging.FATAL)
        warnings.filterwarnings("ignore", module="lightning")
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float32)
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Linear(d + 1, 16, bias=False), torch.nn.ReLU(), torch.nn.Linear(16, 1, bias=False)
        )
        bandit = NeuralUCBBandit(
            n_features=d + 1,
            network=network,
            buffer=TensorDataBuffer(SlidingWindowRetrievalStrategy(1000), max_size=1000),
            selector=TopKSelector(M),
            train_batch_size=16,
            learning_rate=0.005,
            weight_decay=1.0,
            early_stop_threshold=None,
            min_samples_required_for_training=1,
            initial_train_steps=0,
        )
        slots = 0

        def select(t: int, x: np.ndarray) -> np.ndarray:
            inputs = torch.ones(1, K, d + 1)
            inputs[0, :, :d] = torch.from_numpy(2 * x - 1)
            chosen, _ = bandit(inputs)
            return np.flatnonzero(chosen[0].numpy())

        def learn(picks: np.ndarray, x: np.ndarray, h: np.ndarray, r: np.ndarray, n: np.ndarray) -> None:
            nonlocal slots
            slots += 1
            inputs = torch.ones(1, M, d + 1)
            inputs[0, :, :d] = torch.from_numpy(2 * x[picks] - 1)
            bandit.record_feedback(inputs, torch.from_numpy(r[None]).float())
            if train_every and slots % train_every == 0:
                trainer = lightning.Trainer(
                    max_epochs=1,
                    max_steps=1,
                    accelerator="cpu",
                    logger=False,
                    enable_progress_bar=False,
                    enable_checkpointing=False,
                    enable_model_summary=False,
                )
                trainer.fit(bandit)

        return select, learn

    return new
