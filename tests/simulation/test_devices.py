"""On what simulations run: names, precisions, and what a device cannot do."""

import importlib.util
from typing import Any

import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.experiments.spec import experiment
from idleband.simulation.devices import CPU, MAX_NARROW_SLOTS, Device, read_device


def test_names_and_defaults() -> None:
    assert read_device(None, None) == read_device("cpu", "float64") == CPU
    assert read_device("cuda", None) == Device("cuda", "float64")
    assert [str(read_device("cuda", precision)) for precision in ("float64", "float32")] == [
        "cuda",
        "cuda with float32",
    ]
    assert read_device("cuda", "float32").to_dict() == {"device": "cuda", "precision": "float32"}
    assert read_device("cuda", None).to_dict() == {"device": "cuda"}
    assert CPU.to_dict() == {}


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        ("tpu", None, "--device = 'tpu': must be one of cpu, cuda"),
        ("cuda", "float16", "--precision = 'float16': must be one of float64, float32"),
        (None, "float32", "--precision = float32: only used with --device = cuda"),
        ("cpu", "float32", "--precision = float32: only used with --device = cuda"),
    ],
)
def test_invalid_devices_are_refused(device: str | None, precision: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_device(device, precision, "--")


UNCOORDINATED: dict[str, Any] = {"users": {"coordination": "none"}, "perturbation": "none"}


def test_users_without_a_base_station_run_on_the_cpu_only() -> None:
    with pytest.raises(InputError, match=r"^device = cuda: users without a base station \(scenario.users\)"):
        ib.compare(ib.scenario("S1", **UNCOORDINATED), ["mctopm"], horizon=10, device="cuda")
    with pytest.raises(InputError, match=r"^device = cuda: users without a base station"):
        ib.simulate(ib.scenario("S1", **UNCOORDINATED), "mctopm", horizon=10, device="cuda")


def test_counts_in_32_bits_have_an_end() -> None:
    policies = [ib.policy("mp-ucb")]
    assert experiment(ib.scenario("S1"), policies, MAX_NARROW_SLOTS, 1, 0, "cuda", "float32").horizon == 2**24
    with pytest.raises(InputError, match=r"experiment.horizon = 16777217: must be at most 16777216 with precision"):
        experiment(ib.scenario("S1"), policies, MAX_NARROW_SLOTS + 1, 1, 0, "cuda", "float32")
    assert experiment(ib.scenario("S1"), policies, MAX_NARROW_SLOTS + 1, 1, 0, "cuda").horizon > 2**24


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"record": "slots"}, "device = cuda and record: only one of them can be given"),
        ({"threads": 2}, "device = cuda and threads: only one of them can be given"),
        ({"precision": "float16"}, "precision = 'float16': must be one of float64, float32"),
    ],
)
def test_arguments_that_exclude_a_gpu(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ib.simulate("S1", "mp-ucb", horizon=10, device="cuda", **more)


def test_threads_and_clients_of_compare_exclude_a_gpu() -> None:
    for name in ("threads", "client"):
        with pytest.raises(InputError, match=f"device = cuda and {name}: only one of them can be given"):
            ib.compare("S1", ["mp-ucb"], horizon=10, device="cuda", **{name: 1})  # type: ignore[arg-type]


def test_without_numba_cuda_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for call in (ib.simulate, ib.compare):
        with pytest.raises(InputError, match="device = cuda: needs numba-cuda"):
            call("S1", "mp-ucb" if call is ib.simulate else ["mp-ucb"], horizon=10, device="cuda")
