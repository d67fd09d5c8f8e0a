"""Tables for a terminal."""

from idleband.reporting.text import aligned


def test_columns_line_up() -> None:
    text = aligned([("policy", "reward", ""), ("mp-ucb", "2.6", "x"), ("a", "-12.345678", "yy")])
    assert text.split("\n") == [
        "policy      reward",
        "mp-ucb         2.6   x",
        "a       -12.345678  yy",
    ]


def test_one_row_is_as_wide_as_it_is() -> None:
    assert aligned([("a", "b")]) == "a  b"
