"""Sphinx's configuration: Markdown pages, and the Python API read from the sources."""

import re

project = "tf_transformer"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]

html_theme = "furo"
html_title = project
html_copy_source = False

# Headings have the anchors that GitHub gives them.
myst_heading_anchors = 4

# Static: no TensorFlow is installed or imported. Only reference/api.md asks for docstrings.
autoapi_dirs = ["../tf_transformer"]
autoapi_ignore = [f"*/{room}/*" for room in ("cli", "doctor", "serving", "studies", "tasks")]
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
autoapi_python_class_content = "class"
autoapi_options = ["members", "show-inheritance"]

# Docstrings write code in single backquotes, as Markdown does.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Call arguments", "params_style")]

suppress_warnings = ["autoapi.python_import_resolution"]  # constants assigned as tuples


def name_settings(app, what, name, obj, options, lines):
    """Names the page of the settings where a docstring lists them when it is imported."""
    text = "\n".join(lines)
    lines[:] = re.sub(r":\s*\{settings\}", ", see the :doc:`settings`.", text).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", name_settings, priority=1)
