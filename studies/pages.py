"""Copy figures and claims of the reproduction into the documentation. Run by `make pages`."""

import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent
MADE = ROOT / "results/paper"

for name in ("figure1", "figure2", "figure3", "figure4", "map"):
    shutil.copyfile(MADE / f"figures/{name}.png", ROOT / f"docs/figures/{name}.png")
shutil.copyfile(MADE / "claims.md", ROOT / "docs/explanation/claims.md")
