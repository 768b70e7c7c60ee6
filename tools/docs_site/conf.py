"""The settings of Sphinx for the documentation site."""

from __future__ import annotations

project = "Tidegate"
copyright = "the Tidegate authors"  # noqa: A001  # Sphinx reads it by this name
extensions = ["myst_parser"]

# Anchors as code hosts make them of headings, so that a link works there and on the site.
myst_heading_anchors = 6

highlight_language = "text"
html_theme = "furo"
html_title = "Tidegate"
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6b80", "color-brand-content": "#0b6b80"},
    "dark_css_variables": {"color-brand-primary": "#5cc6dc", "color-brand-content": "#5cc6dc"},
}
