"""The figure of a trace."""

import numpy as np

import idleband as ib
from idleband.reporting.trace_figures import trace_figure
from idleband.trace.waterfall import waterfall_of


def test_the_figure_has_four_panels_and_geometric_dwell_times_of_each_channel() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    busy = rng.random((500, 3)) < [0.1, 0.3, 0.5]
    trace = ib.Trace.from_arrays(busy=busy, channel_names=["a", "b", "c"])
    image = waterfall_of([{"busy": trace.busy}], trace.T, trace.K)
    figure = trace_figure("t", trace.metadata, trace.statistics(), image)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert [title.split(" ")[0] for title in titles] == ["Waterfall", "Dwell", "Occupancy", "Correlation"]
    dwell = next(axes for axes in figure.axes if axes.get_title().startswith("Dwell"))
    idle, geometric = dwell.get_lines()[:2]
    found = dict(zip(*idle.get_data(), strict=True))
    expected = dict(zip(*geometric.get_data(), strict=True))
    runs = sum(found_channel.idle.runs for found_channel in trace.statistics().channels)
    # Independent slots have geometric dwell times: the two lines differ by sampling error only.
    for n in (2, 4, 6):
        assert abs(found[n] - expected[n]) < 4 * np.sqrt(0.25 / runs)


def test_power_is_drawn_where_it_is_known() -> None:
    trace = ib.Trace.from_arrays(power=np.arange(20.0).reshape(10, 2), power_unit="digits", threshold=5)
    image = waterfall_of([{"busy": trace.busy, "power": trace.power}], trace.T, trace.K)
    figure = trace_figure("t", trace.metadata, trace.statistics(), image)
    assert "power, digits" in [axes.get_ylabel() for axes in figure.axes]


def test_a_trace_of_one_slot_says_what_cannot_be_drawn() -> None:
    trace = ib.Trace.from_arrays(busy=[[0, 1]])
    image = waterfall_of([{"busy": trace.busy}], trace.T, trace.K)
    figure = trace_figure("t", trace.metadata, trace.statistics(), image)
    written = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert {"fewer than two complete periods", "no two channels change"} <= set(written)
    assert figure.get_suptitle().startswith("t: 1 slot of 1 s, 2 channels")
