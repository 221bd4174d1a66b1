"""Sphinx extension: a chapter has the number of its section, also while others are not written yet.

Sphinx counts chapters in the order of the table of contents, so that section 12 would be chapter 3.
``chapter_numbers`` maps a page to its number; figures, tables and equations follow ("Fig. 12.1"). A page
below a chapter has no number of its own, but its figures count on with those of the chapter.
"""

from __future__ import annotations

from typing import Any


def renumber(env: Any) -> None:
    """Replace the first part of all section numbers of the pages in ``chapter_numbers``."""
    from docutils import nodes

    for page, chapter in env.config.chapter_numbers.items():
        for anchor, number in env.toc_secnumbers.get(page, {}).items():
            env.toc_secnumbers[page][anchor] = number and (chapter, *number[1:])
        titled = [env.titles[page]] if page in env.titles else []
        linked = list(env.tocs[page].findall(nodes.reference)) if page in env.tocs else []
        for node in titled + linked:
            if node.get("secnumber"):
                node["secnumber"] = [chapter, *node["secnumber"][1:]]


def setup(app: Any) -> dict[str, Any]:
    from sphinx.environment.collectors.toctree import TocTreeCollector

    app.add_config_value("chapter_numbers", {}, "env")
    count_figures = TocTreeCollector.assign_figure_numbers

    def assign_figure_numbers(self: Any, env: Any) -> list[str]:
        renumber(env)  # the section numbers are complete here, whichever extension counted them
        numbers = env.config.chapter_numbers
        unnumbered = [page for page in numbers if not env.toc_secnumbers.get(page)]
        env.toc_secnumbers |= {page: {"": (numbers[page],)} for page in unnumbered}
        changed = count_figures(self, env)
        for page in unnumbered:  # a number that stayed would stand before every heading of the page
            del env.toc_secnumbers[page]
        return changed

    TocTreeCollector.assign_figure_numbers = assign_figure_numbers
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
