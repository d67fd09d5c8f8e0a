"""The observer that long computations report their progress to."""


class Progress:
    """Observer of a long computation.

    This base class ignores every report. Subclasses override the methods whose reports they show. Work is measured in
    slots. `advance` may be called from several threads.
    """

    def expect(self, slots: float) -> None:
        """Announce work that is still to be done, in addition to what was announced before."""

    def compiling(self, policy: str) -> None:
        """Announce that the loop of a policy is compiled, or loaded from the cache, next."""

    def advance(self, slots: float) -> None:
        """Report work that has just been done."""

    def message(self, text: str) -> None:
        """Report what is being done, in one line."""


SILENT = Progress()
