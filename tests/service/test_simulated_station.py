"""The simulated base station: a scenario played against a real service, and a radio that loses things."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import idleband as ib
from idleband.allocator.settings import Settings
from idleband.errors import InputError
from idleband.service.client import Client
from idleband.service.http import Limits
from idleband.service.simulated_station import Faults, Station, check_fits
from idleband.simulation.simulate import simulate
from tests.service.running import InThread, eventually, in_thread

NONE = Faults(0.0, 0.0, 0.0)
WORLD = ib.scenario("S1")
SIZE = {"channels": WORLD.K, "users": WORLD.users, "dimension": WORLD.dimension}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[InThread]:
    with in_thread(tmp_path, main=Settings.checked({"policy": "mp-ucb", **SIZE})) as running:
        yield running


@pytest.fixture
def client(service: InThread) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}") as client:
        yield client


def test_it_is_the_simulation_over_http(service: InThread, client: Client) -> None:
    """Without faults: the rewards, and what was possible, are those of the same policy simulated."""
    slots = 200
    station = Station(client, WORLD, seed=3, faults=NONE)
    for _ in range(slots):
        station.step()
    feed = service.within(lambda: service.service.feeds["main"].view())
    # The allocator draws nothing with this policy, so the seed is the station's alone.
    result = simulate(WORLD, "mp-ucb", horizon=slots, replications=1, seed=3)
    reward = result.reward[0, -1]
    assert service.standing()["counts"]["reward"] == pytest.approx(reward, abs=1e-6)
    _, earned, static, contextual = feed["curves"][-1]
    assert earned * slots == pytest.approx(reward, abs=1e-6)
    assert static * slots == pytest.approx(reward + result.regret("static")[0, -1], abs=1e-6)
    assert contextual * slots == pytest.approx(reward + result.regret("contextual")[0, -1], abs=1e-6)
    assert feed["suboptimal"] == [
        result.curves["suboptimal_static"][0, -1], result.curves["suboptimal_contextual"][0, -1]
    ]  # fmt: skip
    assert station.counts == {"sent": slots, "lost": 0, "late": 0, "doubled": 0}


def test_what_a_radio_does(service: InThread, client: Client) -> None:
    slots = 150
    station = Station(client, WORLD, faults=Faults(lost=0.2, late=0.3, doubled=0.3, longest=5))
    for _ in range(slots):
        station.step()
    station.flush()
    counts = station.counts
    assert all(0.1 * slots < counts[kind] < 0.5 * slots for kind in ("lost", "late", "doubled"))
    assert counts["sent"] == slots - counts["lost"] + counts["doubled"]
    standing = service.standing()["counts"]
    assert standing["reported"] == WORLD.users * (slots - counts["lost"])
    assert standing["repeated"] == WORLD.users * counts["doubled"]
    assert standing["late"] == 0  # late, but within the allocator's patience


@pytest.mark.parametrize("kind", ["lost", "late", "doubled"])
def test_each_fault_alone(service: InThread, client: Client, kind: str) -> None:
    station = Station(client, WORLD, faults=NONE._replace(**{kind: 1.0}, longest=3))
    for _ in range(10):
        station.step()
    assert station.counts[kind] == 10
    assert [station.counts[other] for other in ("lost", "late", "doubled") if other != kind] == [0, 0]
    if kind == "late":
        assert service.standing()["counts"]["reported"] < 10 * WORLD.users
    station.flush()
    reported = service.standing()["counts"]["reported"]
    assert reported == (0 if kind == "lost" else 10 * WORLD.users)


def test_names_are_never_used_again(service: InThread, client: Client) -> None:
    """A station that begins anew, with the same seed, asks new questions."""
    names = [Station(client, WORLD, faults=NONE).step().request_id for _ in range(3)]
    again = Station(client, WORLD, faults=NONE)
    names += [again.step().request_id for _ in range(3)]
    assert len(set(names)) == 6
    assert service.standing()["counts"]["decisions"] == 6


def test_it_goes_on_until_it_is_told_to_stop(service: InThread, client: Client) -> None:
    station, stop = Station(client, WORLD), threading.Event()
    running = threading.Thread(target=station.run, args=(1000.0, stop), daemon=True)
    running.start()
    eventually(lambda: station.slot >= 20)
    stop.set()
    running.join(10)
    assert not running.is_alive()


def test_it_survives_what_the_service_refuses(tmp_path: Path) -> None:
    """A rate that is too low for it, say: slots are lost, and the next one is played."""
    main = Settings.checked({"policy": "mp-ucb", **SIZE})
    with in_thread(tmp_path, main=main, limits=Limits(rate=20)) as service:
        client = Client(f"http://127.0.0.1:{service.port}")
        station, stop = Station(client, WORLD), threading.Event()
        running = threading.Thread(target=station.run, args=(1000.0, stop), daemon=True)
        running.start()
        eventually(lambda: station.slot >= 60 or not running.is_alive())
        assert running.is_alive()
        stop.set()
        running.join(10)
        client.close()


def test_what_is_refused_for_good_is_not_sent_for_ever(tmp_path: Path) -> None:
    main = Settings.checked({"policy": "mp-ucb", **SIZE})
    with in_thread(tmp_path, main=main) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        station = Station(client, WORLD, faults=NONE)
        station._queue(1, lambda: client.report("nobody", {0: 1.0}))
        with pytest.raises(ib.UnknownRequestError):
            station.step()
        for _ in range(5):
            station.step()
        assert service.standing()["counts"]["reported"] == 6 * SIZE["users"]
        assert not station._waiting


def test_measured_perturbations(tmp_path: Path) -> None:
    main = Settings.checked({"policy": "mp-ucb", **SIZE, "feedback": "perturbation"})
    with in_thread(tmp_path, main=main) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        station = Station(client, WORLD, faults=NONE)
        decision = station.step()
        kept = service.within(
            lambda: service.service.office.desks["main"].allocator.record(decision.request_id).feedback[2].tolist()
        )
        assert kept == station._walk.world.n[list(decision.channels)].tolist()


@pytest.mark.parametrize("field", SIZE)
def test_sizes_that_do_not_fit(field: str) -> None:
    other = Settings.checked({"policy": "mp-ucb", **SIZE, field: SIZE[field] - 1})
    with pytest.raises(InputError, match=f"{field} = {SIZE[field] - 1}"):
        check_fits("S1", other)
    check_fits("S1", Settings.checked({"policy": "mp-ucb", **SIZE}))
