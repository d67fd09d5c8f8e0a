"""Prototype."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels import logistic, ridge, two_state_chain
from idleband.kernels.compile import jit
from idleband.kernels.rng import beta
from idleband.kernels.selection import top_m
from idleband.kernels.whittle import whittle
from idleband.policies import belief_state
from idleband.policies.last_observation import NEVER, age_of, is_news
from idleband.policies.parameters import AtLeast
from idleband.policies.protocol import BELIEF, ESTIMATE, Feedback, Setup, Slot, to_unit

A = Annotated[float, AtLeast(0.0), "tunable"]

class Params(NamedTuple):
    redraw: belief_state.Redraw = 10
    look_ahead: belief_state.LookAhead = True
    forget: belief_state.Forget = 0.0
    eta: A = 0.3
    share: A = 0.01
    cap: A = 300.0
    bvar: A = 1.0
    bnoise: A = 0.003
    sharerate: A = 50.0
    freshrate: A = 20.0
    rvar: A = 0.1
    rforget: A = 2000.0
    sample: A = 1.0
    ahead: A = 0.0
    bonus: A = 0.0
    prec: A = 0.5
    mask: A = 127.0
    hyst: A = 1.0
    tau: A = 300.0
    trusteta: A = 1.0
    trustshare: A = 0.001
    margin: A = 0.01
    renew: A = 0.0
    renew1: A = 1.0
    renew0: A = 1.0
    ucb: A = 2.0


E = 7
D = 8
CHAIN, EFFECT, SHARE, NEIGH, ONE, G, NBRES, FRESH = range(8)
CELL, REG = 5, 6  # positions in experts: 0 chain 1 effect 2 share 3 neigh 4 fresh 5 cell 6 reg
RUNS, AGES = 10, 14


class State(NamedTuple):
    chains: belief_state.Chains
    successes: Floats
    failures: Floats
    pays: Floats
    pooled_pays: Floats  # (2, 2)
    pool_pairs: Floats
    pool_mode: Floats
    pool_spread: Floats
    pool_seen: Floats  # (2,)
    run: Ints
    newest: Ints
    cell_mean: Floats  # (2, AGES, RUNS)
    cell_n: Floats
    coarse: Floats  # (2,AGES)
    coarse_n: Floats
    effect: Floats  # (K, 3)
    effect_var: Floats
    share: Floats  # (K,)
    share_n: Floats
    fresh: Floats  # (2,)
    neigh: Floats  # (3,3,3)
    neigh_n: Floats
    g: Floats  # (3,) value, sum, n
    resid: Floats  # (K,)
    x: Floats  # (K, D)
    ex: Floats  # (K, E)
    cls: Ints
    cellat: Ints  # (K,2)
    nbat: Ints
    L: Floats  # (K,)
    at: Ints
    w: Floats  # (3,E)
    A_inv: Floats
    theta: Floats
    v: Floats
    trust: Floats  # (1,)
    seen_before: Ints
    remain: Floats  # (RUNS,)
    ratio: Floats  # (RUNS,)
    dbg: Floats  # (3, E+2, 2)


def init(setup: Setup) -> State:
    K, S = setup.h.shape
    theta = np.zeros((3, D))
    theta[:, CHAIN] = 0.4
    theta[:, EFFECT] = 0.4
    theta[:, SHARE] = 0.2
    w = np.full((3, E), 1.0)
    for e in range(E):
        if not (int(setup.params.mask) >> e) & 1:
            w[:, e] = 0.0
    w /= w.sum(1, keepdims=True)
    return State(
        belief_state.new_chains(setup), np.ones((K, S)), np.ones((K, S)), np.zeros((K, S)), np.ones((2, 2)),
        np.zeros((1, two_state_chain.BINS, 2, 2)), np.zeros((1, 2)), np.ones((1, 3)), np.zeros(2),
        np.zeros(K, np.int64), np.zeros(1, np.int64),
        np.full((2, AGES, RUNS), 0.5), np.zeros((2, AGES, RUNS)),
        np.tile([[0.1], [0.9]], (1, AGES)) * 0.5 + 0.25, np.ones((2, AGES)),
        np.zeros((K, 3)), np.full((K, 3), setup.params.bvar),
        np.full(K, 0.5), np.zeros(K), np.array([0.5, 1.0]),
        np.tile(np.array([0.8, 0.2, 0.5])[:, None, None], (1, 3, 3)), np.ones((3, 3, 3)),
        np.zeros(3), np.zeros(K), np.ones((K, D)), np.zeros((K, E)), np.zeros(K, np.int64), np.zeros((K, 2), np.int64),
        np.zeros(K, np.int64), np.zeros(K), np.full(K, -1, np.int64),
        w, np.tile(np.eye(D) * setup.params.rvar, (3, 1, 1)), theta, np.zeros((K, D)), np.full(1, 0.5), np.zeros(K, np.int64), np.ones(RUNS), np.zeros(RUNS), np.zeros((3, E + 2, 2)),
    )


@jit
def log2_bin(n: int, most: int) -> int:
    b = 0
    while n > 1 and b < most - 1:
        n >>= 1
        b += 1
    return b


@jit
def logit(p: float) -> float:
    p = min(max(p, 0.001), 0.999)
    return math.log(p / (1.0 - p))


@jit
def coarse_value(state: State, s: int, a: int) -> float:
    return state.coarse[s, a]


@jit
def cell_value(state: State, s: int, a: int, r: int) -> float:
    n = state.cell_n[s, a, r]
    return (n * state.cell_mean[s, a, r] + 4.0 * state.coarse[s, a]) / (n + 4.0)


@jit
def prior(setup: Setup, state: State):
    return (state.pool_mode[0, 0], state.pool_mode[0, 1], setup.params.prec)


@jit
def predict_all(setup: Setup, state: State, slot: Slot) -> None:
    chains = state.chains
    last = chains.last_observation
    t = slot.t
    newest = state.newest[0]
    K = setup.K
    fresh_logit = logit(state.fresh[0])
    g = state.g[0]
    for k in range(K):
        seen = last.state[k]
        s = 1 if seen != NEVER and setup.good[k, seen] else 0
        recent = seen != NEVER and last.slot[k] == newest
        c = (0 if s == 1 else 1) if recent else 2
        state.cls[k] = c
        # chain
        p, q = logistic.probability(chains.mode[k, 0]), logistic.probability(chains.mode[k, 1])
        if chains.seen[k] == 0.0:
            p, q = logistic.probability(state.pool_mode[0, 0]), logistic.probability(state.pool_mode[0, 1])
        pi = p / (p + q)
        good = pi
        age = 0
        if seen != NEVER:
            age = age_of(last, k, t)
            good = pi + two_state_chain.power(1.0 - p - q, float(age), True) * (s - pi)
        lc = logit(good)
        # cell
        if seen == NEVER:
            cell = fresh_logit
            state.cellat[k, 0] = -1
        else:
            a = log2_bin(age, AGES)
            r = log2_bin(state.run[k], RUNS)
            state.cellat[k, 0], state.cellat[k, 1] = a, r
            cell = logit(cell_value(state, s, a, r))
        keep = setup.params.tau / (setup.params.tau + max(age - 1, 0)) if setup.params.tau > 0.0 else 1.0
        eff = cell + keep * state.effect[k, c]
        n = keep * state.share_n[k]
        sh = logit((n * state.share[k] + 2.0 * state.fresh[0]) / (n + 2.0))
        # neighbours
        ni, nb, res = 0, 0, 0.0
        for j in (k - 1, k + 1):
            if 0 <= j < K and last.state[j] != NEVER and last.slot[j] == newest:
                if setup.good[j, last.state[j]]:
                    ni += 1
                else:
                    nb += 1
                res += state.resid[j]
        for j in (k - 2, k + 2):
            if 0 <= j < K and last.state[j] != NEVER and last.slot[j] == newest:
                res += 0.5 * state.resid[j]
        state.nbat[k] = 3 * ni + nb
        neigh = logit(state.neigh[c, ni, nb])
        x = state.x
        x[k, CHAIN], x[k, EFFECT], x[k, SHARE], x[k, NEIGH] = lc, eff, sh, neigh
        x[k, ONE], x[k, G], x[k, NBRES], x[k, FRESH] = 1.0, g, res, fresh_logit
        reg = ridge.predict(state.theta, c, x, k)
        reg = min(max(reg, -7.0), 7.0)
        ex = state.ex
        ex[k, 0], ex[k, 1], ex[k, 2], ex[k, 3], ex[k, 4], ex[k, 5], ex[k, 6] = lc, eff, sh, neigh, fresh_logit, cell, reg
        L = 0.0
        for e in range(E):
            L += state.w[c, e] * ex[k, e]
        state.L[k] = L
        state.at[k] = t


@jit
def select(setup: Setup, state: State, slot: Slot, picks: Ints) -> int:
    chains = state.chains
    belief_state.carry_with_prior(setup, chains, slot, prior(setup, state))
    if state.g[2] > 0.0:
        state.g[0] = 0.5 * state.g[0] + state.g[1] / state.g[2]
        state.g[1], state.g[2] = 0.0, 0.0
    predict_all(setup, state, slot)
    last = chains.last_observation
    if slot.t % 10 == 1:
        R = 0.0
        for i in range(RUNS):
            b = RUNS - 1 - i
            p = min(0.999, cell_value(state, 1, 0, b))
            if i == 0:
                R = p / (1.0 - p)
            else:
                n = float(1 << b)
                pn = p**n
                R = p * (1.0 - pn) / (1.0 - p) + pn * R
            state.remain[b] = R
            state.ratio[b] = math.log(R * (1.0 - p) / p)
    for k in range(setup.K):
        if belief_state.redrawn(setup, chains, k, slot.t):
            for s in range(setup.states[k]):
                f = 1 if setup.good[k, s] else 0
                m = state.pooled_pays[f, 0] / (state.pooled_pays[f, 0] + state.pooled_pays[f, 1])
                share = beta(slot.rng, state.successes[k, s] - 1.0 + 2.0 * m, state.failures[k, s] - 1.0 + 2.0 * (1.0 - m))
                state.pays[k, s] = setup.low + (setup.high - setup.low) * share
        L = state.L[k]
        w = state.w[state.cls[k], 0]
        trust = state.trust[0]
        L += trust * (state.ex[k, 0] - L)
        w = w * (1.0 - trust) + trust
        good = chains.belief[k, 1]
        if setup.params.sample > 0.0:
            L += setup.params.sample * w * (logit(good) - state.ex[k, 0])
        if setup.params.ucb > 0.0 and state.cls[k] == 2:
            age = 0 if last.state[k] == NEVER else age_of(last, k, slot.t)
            keep = setup.params.tau / (setup.params.tau + max(age - 1, 0)) if setup.params.tau > 0.0 else 1.0
            L += (1.0 - trust) * setup.params.ucb * math.sqrt(setup.params.bvar + keep * (state.effect_var[k, 2] - setup.params.bvar))
        if state.cls[k] == 0:
            L += (1.0 - trust) * setup.params.hyst
        P = logistic.probability(L)
        ahead = whittle(chains.P[k, 0, 1], chains.P[k, 1, 0], P)
        if setup.params.ahead > 0.0:
            value = P + min(1.0, setup.params.ahead) * (ahead - P)
        else:
            value = P + w * (ahead - P)
        if setup.params.renew > 0.0:
            c = state.cls[k]
            odds = L
            if c == 0:
                odds += setup.params.renew0 * state.ratio[log2_bin(state.run[k], RUNS)]
            elif c == 2:
                odds = L + setup.params.renew * (math.log(P * (1.0 + state.remain[0] * math.exp(setup.params.renew1 * state.effect[k, 0]))) - L)
            v = logistic.probability(odds)
            value = v + w * (ahead - v)
        if setup.params.bonus > 0.0 and state.cls[k] == 2:
            value += setup.params.bonus * P * (1.0 - P)
        if slot.sensed[k] >= 0:
            value = 1.0 if setup.good[k, slot.sensed[k]] else 0.0
        slot.indices[k] = state.pays[k, 0] + value * (state.pays[k, 1] - state.pays[k, 0])
    return top_m(slot.indices, slot.available, setup.M, slot.scratch, picks)


@jit
def update(setup: Setup, state: State, slot: Slot, feedback: Feedback) -> None:
    k, s, r = feedback.channel, feedback.state, feedback.reward
    t = slot.t
    y = 1.0 if setup.good[k, s] else 0.0
    f = 1 if setup.good[k, s] else 0
    share = to_unit(setup, r)
    state.successes[k, s] += share
    state.failures[k, s] += 1.0 - share
    state.pooled_pays[f, 0] += share
    state.pooled_pays[f, 1] += 1.0 - share
    chains = state.chains
    last = chains.last_observation
    if not is_news(last, k, t):
        return
    before = last.state[k]
    age = age_of(last, k, t) if before != NEVER else 0
    state.seen_before[k] = t - age
    if before != NEVER:
        state.pool_pairs[0, two_state_chain.bin_of(age), 1 if setup.good[k, before] else 0, f] += 1.0
        state.pool_seen[0] += 1.0
        if state.pool_seen[0] >= state.pool_seen[1]:
            two_state_chain.fit(state.pool_pairs, chains.ages, 0, state.pool_mode, state.pool_spread)
            state.pool_seen[1] = 1.1 * state.pool_seen[0] + 1.0
    belief_state.observe_with_prior(setup, chains, k, s, t, prior(setup, state))
    if state.at[k] == t:
        c = state.cls[k]
        learn(setup, state, k, c, y)
    if before != NEVER:
        learn_cell(setup, state, k, 1 if setup.good[k, before] else 0, age, y)
    same = before != NEVER and setup.good[k, before] == setup.good[k, s]
    state.run[k] = state.run[k] + 1 if same and age <= 2 else 1
    n = min(state.share_n[k] + 1.0, setup.params.sharerate)
    state.share_n[k] = n
    state.share[k] += (y - state.share[k]) / n
    state.newest[0] = max(state.newest[0], t)


@jit
def loss(L: float, y: float) -> float:
    z = L if y > 0.5 else -L
    if z > 30.0:
        return 0.0
    return math.log(1.0 + math.exp(-z))


@jit
def learn(setup: Setup, state: State, k: int, c: int, y: float) -> None:
    pr = setup.params
    p = logistic.probability(state.L[k])
    state.resid[k] = y - p
    state.g[1] += y - p
    state.g[2] += 1.0
    # debug
    for e in range(E):
        state.dbg[c, e, 0] += loss(state.ex[k, e], y)
        state.dbg[c, e, 1] += 1.0
    state.dbg[c, E, 0] += loss(state.L[k], y)
    state.dbg[c, E, 1] += 1.0
    z = math.log(state.trust[0] / (1.0 - state.trust[0]))
    z += pr.trusteta * ((1.0 + pr.margin) * loss(state.L[k], y) - loss(state.ex[k, 0], y))
    z = min(max(z, -20.0), 20.0)
    a = pr.trustshare / setup.M
    state.trust[0] = (1.0 - a) * logistic.probability(z) + 0.5 * a
    # mixture
    total = 0.0
    for e in range(E):
        state.w[c, e] *= math.exp(-pr.eta * loss(state.ex[k, e], y))
        total += state.w[c, e]
    live = 0.0
    for e in range(E):
        live += (int(pr.mask) >> e) & 1
    a = pr.share / setup.M
    for e in range(E):
        if (int(pr.mask) >> e) & 1:
            state.w[c, e] = (1.0 - a) * state.w[c, e] / total + a / live
    # regression
    for i in range(D):
        m = state.A_inv[c, i, i]
        if m < pr.rvar:
            state.A_inv[c, i, i] = min(pr.rvar, m * (1.0 + 1.0 / pr.rforget))
    q = ridge.width_squared(state.A_inv, c, state.x, state.v, k)
    logistic.learn(state.A_inv, state.theta, c, state.v, k, q, ridge.predict(state.theta, c, state.x, k), y)
    # effect
    last = state.chains.last_observation
    age = state.at[k] - state.seen_before[k]
    keep = pr.tau / (pr.tau + max(age - 1, 0)) if pr.tau > 0.0 else 1.0
    for d in range(3):
        state.effect[k, d] *= keep
        state.effect_var[k, d] = pr.bvar + keep * (state.effect_var[k, d] - pr.bvar)
    state.share_n[k] *= keep
    h = logistic.probability(state.ex[k, 1])
    var = state.effect_var[k, c]
    var = var / (1.0 + var * h * (1.0 - h))
    state.effect[k, c] += var * (y - h)
    state.effect_var[k, c] = min(pr.bvar, var + pr.bnoise)
    i, j = state.nbat[k] // 3, state.nbat[k] % 3
    n = min(pr.cap, state.neigh_n[c, i, j] + 1.0)
    state.neigh_n[c, i, j] = n
    state.neigh[c, i, j] += (y - state.neigh[c, i, j]) / n
    if c == 2:
        n = min(pr.freshrate, state.fresh[1] + 1.0)
        state.fresh[1] = n
        state.fresh[0] += (y - state.fresh[0]) / n


@jit
def learn_cell(setup: Setup, state: State, k: int, s: int, age: int, y: float) -> None:
    a = log2_bin(age, AGES)
    r = log2_bin(state.run[k], RUNS)
    cap = setup.params.cap
    n = min(cap, state.cell_n[s, a, r] + 1.0)
    state.cell_n[s, a, r] = n
    state.cell_mean[s, a, r] += (y - state.cell_mean[s, a, r]) / n
    n = min(cap, state.coarse_n[s, a] + 1.0)
    state.coarse_n[s, a] = n
    state.coarse[s, a] += (y - state.coarse[s, a]) / n


@jit
def explain(setup: Setup, state: State, slot: Slot, terms: Floats) -> None:
    for k in range(setup.K):
        terms[k, BELIEF] = logistic.probability(state.L[k])


def terms(setup: Setup) -> tuple[str, str]:
    return "mean reward", "-"
