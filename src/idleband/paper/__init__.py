"""The paper, regenerated and judged: readings -> plan -> run -> claims and figures -> one page."""
