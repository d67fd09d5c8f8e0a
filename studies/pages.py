"""Renew what README and docs show of the reproduction: figures, claims, and the README's table. Run by `make pages`."""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
MADE = ROOT / "results/paper"

for name in ("figure1", "figure2", "figure3", "figure4", "map"):
    shutil.copyfile(MADE / f"figures/{name}.png", ROOT / f"docs/figures/{name}.png")
shutil.copyfile(MADE / "claims.md", ROOT / "docs/claims.md")
table = "".join(line for line in (MADE / "claims.md").open() if line.startswith("|"))
readme = ROOT / "README.md"
text, found = re.subn(
    r"^\|[^\n]*\| C1 \|.*?\n(?=\n)", lambda _: table, readme.read_text(), flags=re.DOTALL | re.MULTILINE
)
assert found == 1, "README.md has no table of claims"
readme.write_text(text)
