"""What must be equal so that two processes compute the same numbers."""

from idleband.cluster.installation import ARITHMETIC, difference, installation


def test_installation_names_what_computes_results() -> None:
    found = installation()
    assert found["numpy"][0].isdigit()
    assert {"Python", "idleband", "numpy", "numba", "llvmlite", "scipy", ARITHMETIC} < set(found)
    assert difference(found, found) == ""


def test_other_versions_are_named_without_the_last_bits_that_follow_from_them() -> None:
    here = installation()
    there = {**here, "numba": "0.1", ARITHMETIC: "other"}
    assert difference(here, there) == f"numba is 0.1, and {here['numba']} here"


def test_other_last_bits_are_named_where_all_versions_are_equal() -> None:
    here = installation()
    text = difference(here, {**here, ARITHMETIC: "other"})
    assert text == "its processor, C library or BLAS gives other last bits than here"
