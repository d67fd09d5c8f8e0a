"""Settings of the documentation site. `make docs` builds it into site/ with warnings as errors."""

import sys
from pathlib import Path

import idleband

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "idleband"
author = "the idleband developers"
version = release = idleband.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_extensions", "_static"]
needs_sphinx = "9.0"

# Pages are Markdown. Headings get anchors, so that links to sections are checked.
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

# Docstrings are in NumPy style. Single backticks are code.
default_role = "code"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_preprocess_types = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
add_module_names = False
suppress_warnings = ["ref.python"]  # types in docstrings are text, such as "array of shape (K, d)"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

# The theme uses fonts of the system. The search index is built in; nothing is loaded from elsewhere.
html_theme = "pydata_sphinx_theme"
html_title = f"idleband {release}"
html_static_path = ["_static"]
html_css_files = ["idleband.css"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"tutorial": [], "gallery": [], "glossary": []}
html_theme_options = {
    "logo": {"text": "idleband"},
    "show_prev_next": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
project_copyright = "the idleband developers, BSD-3-Clause"
