"""Scenarios for agents that are not policies of this package: stepped by hand, or as environments of Gymnasium."""
