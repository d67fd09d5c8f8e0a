"""The names of the package."""

import subprocess
import sys

import pytest

import idleband as ib


def test_every_public_name_can_be_imported() -> None:
    for name in ib.__all__:
        assert getattr(ib, name) is not None
        assert name in dir(ib)


def test_scenario_is_the_function_whatever_is_imported_first() -> None:
    code = "import idleband.scenario.markov, idleband.allocator.allocator, idleband as ib; print(ib.scenario('S1').K)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("10\n", "")


def test_version_and_unknown_names() -> None:
    assert ib.__version__.count(".") >= 1
    with pytest.raises(AttributeError, match="module 'idleband' has no attribute 'simulat'"):
        ib.simulat  # noqa: B018


def test_importing_the_package_loads_neither_compiler_nor_table_nor_plot_library() -> None:
    heavy = ["numba", "llvmlite", "scipy", "pandas", "pyarrow", "matplotlib", "rich", "starlette", "uvicorn"]
    code = f"import sys, idleband; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")
