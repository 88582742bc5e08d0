"""Sphinx's configuration: Markdown pages, notebooks, and the API read from the sources."""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
PATH = list(sys.path)

project = "tf_transformer"
root_doc = "index"
extensions = ["myst_nb", "sphinx.ext.napoleon", "autoapi.extension"]

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
highlight_language = "none"  # for code blocks without a language
smartquotes = False  # they would join the two dashes of an option

myst_heading_anchors = 4  # like GitHub's
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"  # the notebooks are executed already

# Static: TensorFlow is neither installed nor imported. reference/api.md names what to document.
autoapi_dirs = ["../tf_transformer"]
_UNDOCUMENTED = (
    "cli", "conversion", "export", "fast", "litert", "quality", "reports", "serving",
    "training",
)  # fmt: skip
autoapi_ignore = [f"*/{package}/*" for package in _UNDOCUMENTED]
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
suppress_warnings = ["autoapi.python_import_resolution"]  # constants assigned as tuples
add_module_names = False

default_role = "code"  # docstrings write code as Markdown does
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = [("Call arguments", "params_style")]


def copy_notebooks(app, config):
    """Copies notebooks and notes into Sphinx's folder, outside which it reads nothing."""
    (HERE / "notebooks").mkdir(exist_ok=True)
    for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, HERE / "notebooks")
    notes = (HERE.parent / "benchmarks" / "NOTES.md").read_text("utf-8")
    page = f"---\norphan: true\n---\n{notes}"  # in no list of pages
    (HERE / "notebooks" / "measurements.md").write_text(page, "utf-8")


def hide_packages(app):
    """Hides installed packages, so that AutoAPI does not parse TensorFlow and Keras."""
    sys.path[:] = [folder for folder in sys.path if "site-packages" not in folder]


def show_packages(app):
    """Undoes `hide_packages`."""
    sys.path[:] = PATH


def link_notebooks(app, name, source):
    """Redirects links to notebooks and notes to their copies, and theirs to the pages."""
    text = source[0].replace("](../../notebooks/", "](../notebooks/")
    text = text.replace("](../../benchmarks/NOTES.md", "](../notebooks/measurements.md")
    source[0] = text.replace("](../docs/", "](../")


def setup(app):
    app.connect("config-inited", copy_notebooks)
    app.connect("builder-inited", hide_packages, priority=1)
    app.connect("builder-inited", show_packages, priority=999)
    app.connect("source-read", link_notebooks)
