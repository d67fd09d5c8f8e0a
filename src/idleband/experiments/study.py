"""A study: the results of several policies on the same sample paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from idleband import validation
from idleband.errors import InputError, counted, shown, unknown
from idleband.scenario.scenario import Scenario
from idleband.simulation.result import Result, columns_for
from idleband.simulation.statistics import Difference, Interval

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

COMPACT = ("reward", "reward_pm", "regret_static", "collisions")
SCALES = ("reward", "paper")


@dataclass(frozen=True, repr=False)
class Study:
    """Results of several policies on the same sample paths. `idleband.compare` and `idleband.load` return one.

    Attributes
    ----------
    scenario : Scenario
        The scenario that was simulated.
    seed : int
        Seed of the random streams.
    results : tuple of Result
        One result per policy, in the order in which the policies were given. `study[label]` is the result of one.
    complete : bool
        False for a stored study of which a part has not been run.

    Examples
    --------
    >>> import idleband as ib
    >>> study = ib.compare("S1", ["mp-random", "mp-ucb"], horizon=100, replications=2)
    >>> study
    Study(S1: 2 policies x 2 replications x 100 slots)
    >>> study.labels, study["mp-ucb"].reward.shape
    (['mp-random', 'mp-ucb'], (2, 30))
    """

    scenario: Scenario
    seed: int
    results: tuple[Result, ...]
    complete: bool = True

    def __repr__(self) -> str:
        first = self.results[0]
        counts = {"policy": len(self.results), "replication": first.replications, "slot": first.horizon}
        size = " x ".join(counted(n, noun) for noun, n in counts.items())
        return f"Study({self.scenario.name}: {size})"

    def __str__(self) -> str:
        return f"{self!r}, {self._contents()}\n{self.table().to_string(float_format='{:.4f}'.format)}"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks."""
        import html

        table = self.table().to_html(float_format="{:.4f}".format)
        return f"<p>{html.escape(repr(self))}, {self._contents()}</p>{table}"

    def _contents(self) -> str:
        """Describe the table in words."""
        found = self.results[0].samples().interval()
        return f"means per slot, ± {found.basis}" if found.blocks else "means per slot"

    @property
    def labels(self) -> list[str]:
        """Labels of the policies: the name, and the parameters that differ from their defaults."""
        return [result.label for result in self.results]

    def __getitem__(self, label: str) -> Result:
        """Return the result of the policy with this label."""
        for result in self.results:
            if result.label == label:
                return result
        raise unknown("policy", label, self.labels)

    def interval(self, label: str, column: str = "reward", *, per_slot: bool = False) -> Interval:
        """Return the mean over replications of a quantity at the horizon, with its 95% interval.

        Parameters
        ----------
        label : str
            Label of the policy.
        column : str
            The quantity: "reward", "regret_static", "regret_contextual", "regret_genie", "regret_table",
            "regret_bound", "suboptimal_static", "suboptimal_contextual" or "collisions".
        per_slot : bool
            Whether the quantity is divided by the horizon.

        Returns
        -------
        Interval
            `mean`, `low`, `high`, `replications`, and `blocks` where a trace is replayed: the interval then comes from
            a bootstrap over blocks of it.
        """
        return self[label].samples(column, per_slot=per_slot).interval()

    def difference(self, a: str, b: str, column: str = "reward", *, per_slot: bool = False) -> Difference:
        """Return the paired difference a - b of a quantity at the horizon, with its 95% interval.

        Both policies ran on the same sample paths, so that the interval is much narrower than those of the two
        policies. It is a Student t interval over replications; where a trace is replayed, a bootstrap over blocks of
        the trace.

        Parameters
        ----------
        a, b : str
            Labels of two policies.
        column : str
            The quantity, as in `interval`.
        per_slot : bool
            Whether the quantity is divided by the horizon.

        Returns
        -------
        Difference
            `mean`, `low`, `high` and `replications`; its text names the policies, the quantity and the unit.

        Examples
        --------
        >>> import idleband as ib
        >>> study = ib.compare("S1", ["mp-random", "mp-ucb"], horizon=1000, replications=3)
        >>> print(study.difference("mp-ucb", "mp-random", per_slot=True))
        mp-ucb minus mp-random: reward +0.8271 per slot, 95% interval 0.6122 to 1.042, 3 replications
        """
        of, minus = (self[label].samples(column, per_slot=per_slot) for label in (a, b))
        unit = "per slot" if per_slot else f"in {counted(self[a].horizon, 'slot')}"
        return Difference.of((of - minus).interval(), a, b, column, unit)

    def table(self, columns: Sequence[str] | None = None, *, full: bool = False) -> "pandas.DataFrame":
        """Return one row per policy, the highest reward first.

        Values are means per slot over replications at the horizon. A column `NAME_pm` is the half width of the 95%
        interval of NAME (see `interval`).

        Parameters
        ----------
        columns : list of str, optional
            Columns to return. The default, `reward`, `reward_pm`, `regret_static` and `collisions`, fits a line of 80
            characters.
        full : bool
            Whether all columns are returned.

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import idleband as ib
        >>> study = ib.compare("S1", ["mp-random", "mp-ucb"], horizon=100, replications=2)
        >>> study.table(["reward", "regret_genie"]).index.tolist()
        ['mp-ucb', 'mp-random']
        """
        import pandas

        allowed = [name for column in columns_for(self.scenario) for name in (column, f"{column}_pm")]
        if isinstance(columns, str):
            raise InputError(f"columns = {columns!r}: must be a list of columns")
        chosen = allowed if full else list(COMPACT if columns is None else columns)
        for name in chosen:
            if name not in allowed:
                raise unknown("column", name, allowed)
        rows: list[dict[str, Any]] = []
        for result in self.results:
            row: dict[str, Any] = {"label": result.label}
            for column in columns_for(self.scenario):
                found = self.interval(result.label, column, per_slot=True)
                row |= {column: found.mean, f"{column}_pm": found.half_width}
            rows.append(row)
        ranked = sorted(rows, key=lambda row: -row["reward"])
        return pandas.DataFrame(ranked).set_index("label")[chosen]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the tidy table as a DataFrame, one row per policy, replication and checkpoint."""
        import pandas

        return pandas.concat([result.to_pandas() for result in self.results], ignore_index=True)

    def plot(
        self,
        path: str | Path | None = None,
        *,
        scale: Literal["reward", "paper"] = "reward",
        reference: str | None = None,
    ) -> "Figure":
        """Draw the study.

        Parameters
        ----------
        path : str or Path, optional
            File for the figure, ending in .png, .svg or .pdf. Its folder is created if necessary.
        scale : {"reward", "paper"}
            "reward": reward per slot over time, and paired differences to one policy. "paper": regret on the scale of
            the paper, R(t) / (M ln t).
        reference : str, optional
            With scale "reward", the label of the policy that the others are compared with; by default that with the
            highest reward. With scale "paper", what regret is measured against: "static" (default), "contextual",
            "genie", "table" or "bound".

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        InputError
            If an argument is invalid.
        StorageError
            If the file cannot be written.
        """
        # Imported here because reporting lies above experiments in the layers, and users look for `plot` on a study.
        # The import contract in pyproject.toml lists this exception.
        from idleband.reporting.plots import FIGURES, regret_figure, reward_figure, write_figure

        file = None if path is None else validation.path(path, "path", "file")
        if file is not None and (file.suffix not in FIGURES or file.is_dir()):
            raise InputError(f"path = {shown(path)}: must be the name of a file that ends in {', '.join(FIGURES)}")
        if validation.choice(scale, "scale", SCALES) == "paper":
            figure = regret_figure(self.scenario, self.results, "static" if reference is None else reference)
        else:
            figure = reward_figure(self.scenario, self.results, reference)
        if file is not None:
            write_figure(figure, file)
        return figure
