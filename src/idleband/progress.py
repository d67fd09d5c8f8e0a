"""The observer that long computations report their progress to."""


class Progress:
    """Observer of a long computation. This base class ignores everything; subclasses override what they show.

    Work is measured in slots. Methods may be called from several threads.
    """

    def expect(self, slots: float) -> None:
        """Announce work in addition to what was announced before."""

    def compiling(self, policy: str) -> None:
        """Announce that the loop of a policy is compiled or loaded next."""

    def advance(self, slots: float) -> None:
        """Report work that has just been done, or was found done in stored results."""

    def message(self, text: str) -> None:
        """Report what is being done, in a few words."""
