"""From a recording to a recommended policy: import, description, fit, replay of policies, and one report."""
