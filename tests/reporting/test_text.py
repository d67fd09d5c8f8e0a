"""Tables and paragraphs for a terminal."""

from idleband.reporting.text import definitions, paragraph, table


def test_columns_are_aligned() -> None:
    text = table([("policy", "reward", ""), ("mp-ucb", "2.6", "x"), ("a", "-12.345678", "yy")])
    assert text.split("\n") == [
        "policy      reward",
        "mp-ucb         2.6   x",
        "a       -12.345678  yy",
    ]


def test_single_row_has_no_padding() -> None:
    assert table([("a", "b")]) == "a  b"


def test_long_labels_are_wrapped_to_the_width() -> None:
    text = table([("policy", "reward"), ("mp-lucb beta=0.123 lambda=0.5", "2.6")], width=26)
    assert text.split("\n") == ["policy              reward", "mp-lucb beta=0.123     2.6", " lambda=0.5"]


def test_paragraphs_and_definitions_are_wrapped_at_80_columns() -> None:
    words = "word " * 40
    assert max(map(len, paragraph(words).split("\n"))) <= 80
    lines = definitions([("term", words), ("t", "short")]).split("\n")
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("      word")
    assert lines[-1] == "t     short"
