"""The simulated base station, against a real service."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.settings import Settings
from idleband.errors import InputError, UnknownRequestError
from idleband.service.client import Client
from idleband.service.limits import Limits
from idleband.service.simulated_station import Faults, SimulatedStation, station_scenario
from idleband.simulation.simulate import simulate
from tests.service.running import TIMEOUT, InThread, eventually, in_thread

NO_FAULTS = Faults(0.0, 0.0, 0.0)
SCENARIO = ib.scenario("S1")
SIZES = {"channels": SCENARIO.K, "users": SCENARIO.users, "dimension": SCENARIO.dimension}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InThread]:
    with in_thread(tmp_path, main=Settings.checked({"policy": "mp-ucb", **SIZES})) as running:
        yield running


@pytest.fixture
def client(service: InThread) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}") as client:
        yield client


def test_station_without_faults_equals_a_simulation(service: InThread, client: Client) -> None:
    slots = 200
    station = SimulatedStation(client, SCENARIO, seed=3, faults=NO_FAULTS)
    for _ in range(slots):
        station.step()
    view = service.within(lambda: service.service.api.views[1].view())
    # This policy draws no random numbers, so the seed is that of the station.
    result = simulate(SCENARIO, "mp-ucb", horizon=slots, replications=1, seed=3)
    reward = result.reward[0, -1]
    assert service.status()["counts"]["reward"] == pytest.approx(reward, abs=1e-6)
    _, earned, static, contextual = view["curves"][-1]
    assert earned * slots == pytest.approx(reward, abs=1e-6)
    assert static * slots == pytest.approx(reward + result.regret("static")[0, -1], abs=1e-6)
    assert contextual * slots == pytest.approx(reward + result.regret("contextual")[0, -1], abs=1e-6)
    assert view["suboptimal"] == [
        result.curves["suboptimal_static"][0, -1], result.curves["suboptimal_contextual"][0, -1]
    ]  # fmt: skip
    assert station.counts == {"sent": slots, "lost": 0, "late": 0, "repeated": 0}


def test_lost_late_and_repeated_reports(service: InThread, client: Client) -> None:
    slots = 150
    station = SimulatedStation(client, SCENARIO, faults=Faults(lost=0.2, late=0.3, repeated=0.3, max_delay=5))
    for _ in range(slots):
        station.step()
    station.flush()
    counts = station.counts
    assert all(0.1 * slots < counts[kind] < 0.5 * slots for kind in ("lost", "late", "repeated"))
    assert counts["sent"] == slots - counts["lost"] + counts["repeated"]
    counted = service.status()["counts"]
    assert counted["reported"] == SCENARIO.users * (slots - counts["lost"])
    assert counted["repeated"] == SCENARIO.users * counts["repeated"]
    assert counted["late"] == 0  # late, but within the allocator's patience


@pytest.mark.parametrize("kind", ["lost", "late", "repeated"])
def test_station_makes_the_requested_fault(service: InThread, client: Client, kind: str) -> None:
    station = SimulatedStation(client, SCENARIO, faults=NO_FAULTS._replace(**{kind: 1.0}, max_delay=3))
    for _ in range(10):
        station.step()
    assert station.counts[kind] == 10
    assert [station.counts[other] for other in ("lost", "late", "repeated") if other != kind] == [0, 0]
    if kind == "late":
        assert service.status()["counts"]["reported"] < 10 * SCENARIO.users
    station.flush()
    reported = service.status()["counts"]["reported"]
    assert reported == (0 if kind == "lost" else 10 * SCENARIO.users)


def test_request_ids_are_not_used_again(service: InThread, client: Client) -> None:
    """Not even by another station with the same seed."""
    names = [SimulatedStation(client, SCENARIO, faults=NO_FAULTS).step().request_id for _ in range(3)]
    again = SimulatedStation(client, SCENARIO, faults=NO_FAULTS)
    names += [again.step().request_id for _ in range(3)]
    assert len(set(names)) == 6
    assert service.status()["counts"]["decisions"] == 6


def test_run_ends_when_stopped(service: InThread, client: Client) -> None:
    station, stop = SimulatedStation(client, SCENARIO), threading.Event()
    running = threading.Thread(target=station.run, args=(1000.0, stop), daemon=True)
    running.start()
    eventually(lambda: station.slot >= 20)
    stop.set()
    running.join(TIMEOUT)
    assert not running.is_alive()


def test_run_continues_after_refused_requests(tmp_path: Path) -> None:
    """For example with a rate limit below its pace: slots are lost and the next one is played."""
    main = Settings.checked({"policy": "mp-ucb", **SIZES})
    with in_thread(tmp_path, main=main, limits=Limits(rate=20)) as service:
        client = Client(f"http://127.0.0.1:{service.port}")
        station, stop = SimulatedStation(client, SCENARIO), threading.Event()
        running = threading.Thread(target=station.run, args=(1000.0, stop), daemon=True)
        running.start()
        eventually(lambda: station.slot >= 60 or not running.is_alive())
        assert running.is_alive()
        stop.set()
        running.join(TIMEOUT)
        client.close()


def test_refused_report_is_not_sent_again(tmp_path: Path) -> None:
    main = Settings.checked({"policy": "mp-ucb", **SIZES})
    with in_thread(tmp_path, main=main) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        station = SimulatedStation(client, SCENARIO, faults=NO_FAULTS)
        station._enqueue(1, lambda: client.report("unknown", {0: 1.0}))
        with pytest.raises(UnknownRequestError):
            station.step()
        for _ in range(5):
            station.step()
        assert service.status()["counts"]["reported"] == 6 * SIZES["users"]
        assert not station._queue


def test_measured_perturbations_are_reported(tmp_path: Path) -> None:
    main = Settings.checked({"policy": "mp-ucb", **SIZES, "feedback": "perturbation"})
    with in_thread(tmp_path, main=main) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        station = SimulatedStation(client, SCENARIO, faults=NO_FAULTS)
        decision = station.step()
        record = service.core().record(decision.request_id)
        assert record.feedback[2].tolist() == station._run.path.n[list(decision.channels)].tolist()


@pytest.mark.parametrize("field", SIZES)
def test_other_sizes_are_refused(field: str) -> None:
    other = Settings.checked({"policy": "mp-ucb", **SIZES, field: SIZES[field] - 1})
    with pytest.raises(InputError, match=f"{field} = {SIZES[field] - 1}"):
        station_scenario("S1", other)
    assert station_scenario("S1", Settings.checked({"policy": "mp-ucb", **SIZES})) == SCENARIO


# --- traces and sensing errors ---------------------------------------------------------------------------------------


def recorded(slots: int = 60) -> ib.Trace:
    """Return a trace of four named channels."""
    busy = np.random.default_rng(1).random((slots, 4)) < [0.2, 0.4, 0.6, 0.8]
    return ib.Trace.from_arrays(busy=busy, channel_names=["704 MHz", "705 MHz", "706 MHz", "707 MHz"])


def test_a_trace_gets_the_users_of_the_allocator(tmp_path: Path) -> None:
    recorded().save(tmp_path / "trace.parquet")
    for dimension in (None, 8):
        allocator = Settings.checked({"policy": "mp-ucb", "channels": 4, "users": 3, "dimension": dimension})
        scenario = station_scenario(str(tmp_path / "trace.parquet"), allocator)
        assert (scenario.K, scenario.users, scenario.perturbation.kind) == (4, 3, "none")
        assert scenario.channel_names[0] == "704 MHz"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"channels": 5}, "channels = 5: trace in memory has 4"),
        ({"dimension": 3}, "dimension = 3: scenario trace has 8"),
        ({"rewards": (0.0, 0.5)}, "rewards = [0.0, 0.5]: scenario trace has rewards from 0.1 to 1"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    settings = Settings.checked({"policy": "mp-ucb", "channels": 4, "users": 2, **given})
    with pytest.raises(InputError) as refused:
        station_scenario(recorded(), settings)
    assert str(refused.value) == message


@pytest.mark.parametrize("sensing", ["played", "all"])
def test_replay_with_sensing_errors_equals_a_simulation(tmp_path: Path, sensing: str) -> None:
    """Observed states, and the rewards that belong to them, are reported; contexts are not sent to mp-ucb."""
    slots = 150
    errors = {"missed": 0.2, "false_alarm": 0.1}
    scenario = ib.scenario(recorded(), users=2, sensing=sensing, sensing_errors=errors)
    main = Settings.checked({"policy": "mp-ucb", "channels": 4, "users": 2, "sensing_errors": errors})
    with in_thread(tmp_path, main=main) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        station = SimulatedStation(client, scenario, seed=3, faults=NO_FAULTS)
        wrong = 0
        for _ in range(slots):
            decision = station.step()
            record = service.core().record(decision.request_id)
            path = station._run.path
            wrong += int((path.observed != path.s).sum())
            observed = path.observed[list(decision.channels)]
            assert record.feedback[1].tolist() == observed.tolist()
            assert record.feedback[0].tolist() == np.where(observed == 1, 1.0, 0.1).tolist()
            assert record.request.sensed.tolist() == (path.observed.tolist() if sensing == "all" else [-1] * 4)
        plays = {k: one["plays"] for k, one in enumerate(service.status()["channel"])}
    # 150 slots of 4 channels with error probabilities of 0.1 to 0.2: about 90 errors.
    assert 50 < wrong < 130
    # This policy draws no random numbers, so the seed is that of the station.
    result = simulate(scenario, "mp-ucb", horizon=slots, replications=1, seed=3)
    assert list(plays.values()) == result.plays[0].tolist()
