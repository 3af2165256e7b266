"""A hook of mkdocs that turns the formulas of a page into MathML, which browsers show without scripts or downloads."""

import re

from latex2mathml.converter import convert

# Code is matched first, so that dollar signs in it are left alone.
TEXT = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^$]+?)\$", re.MULTILINE | re.DOTALL)
BIG = re.compile(r"\\[bB]ig[lr]?(?=\W)")  # delimiters stretch by themselves
PLACEHOLDER = "formula-{}-of-this-page"

formulas: list[str] = []


def on_page_markdown(markdown, **_):
    formulas.clear()

    def replace(match):
        tex = match["block"] or match["inline"]
        if tex is None:
            return match[0]
        formulas.append(convert(BIG.sub("", tex), display="block" if match["block"] else "inline"))
        return PLACEHOLDER.format(len(formulas) - 1)

    return TEXT.sub(replace, markdown)


def on_page_content(html, **_):
    for index, formula in enumerate(formulas):
        html = html.replace(PLACEHOLDER.format(index), formula)
    return html
