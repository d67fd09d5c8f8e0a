"""Parts of the reproduction: the values that `idleband reproduce --only` accepts.

Tables I and II and the worked example need no simulation and are always included.
"""

PARTS = {
    "figure1": "regret over time, S1 to S4",
    "figure2": "sub-optimal plays, S1 to S4 (from the runs of figure 1)",
    "figure3": "regret against M in S1",
    "figure4": "regret against beta in S1",
    "readings": "the other readings of the paper",
    "map": "where context pays: the margin of MP-LUCB against P(n<1)",
}
