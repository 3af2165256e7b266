"""Renders a document as one self-contained HTML page."""

from base64 import b64encode
from html import escape

from tensorion_lab.report.document import Document, RenderedFigure, Section, Table

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; color: #1a1a1a; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2rem 0 .75rem; border-bottom: 1px solid #d0d0d0; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p, figcaption { color: #4a4a4a; font-size: .875rem; margin: .25rem 0; overflow-wrap: anywhere; }
/* A shadow at the right edge shows that the table can be scrolled. */
.wide { overflow-x: auto; --page: #fff; --shadow: #0004; background:
  linear-gradient(to left, var(--page) 30%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--shadow), transparent) right / .75rem 100% no-repeat scroll; }
table { border-collapse: separate; border-spacing: 0; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; text-align: left; border-bottom: 1px solid #e3e3e3; vertical-align: top; }
th { border-bottom: 2px solid #595959; }
th { vertical-align: bottom; }
.r { text-align: right; }
td.r { white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
.results th:first-child, .results td:first-child { position: sticky; left: 0; background: #fff;
  min-width: 7rem; }
.best td { font-weight: 700; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 1.5rem;
  margin-top: 1.5rem; }
figure { margin: 0; break-inside: avoid; }
img { display: block; width: 100%; height: auto; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: .5rem 0 1rem; font-size: .875rem; }
dl div { overflow-wrap: anywhere; }
dt, dd { display: inline; margin: 0; }
dt { color: #595959; }
dt::after { content: " "; }
@media (max-width: 40rem) {
  body { padding: .75rem; }
  h1 { font-size: 1.35rem; }
  h2 { font-size: 1.1rem; }
  table { font-size: .8125rem; }
  th, td { padding: .25rem .35rem; }
  .results th:first-child, .results td:first-child { min-width: 5rem; max-width: 9rem; overflow-wrap: anywhere; }
}
@media screen and (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #16181b; }
  p, figcaption, dt { color: #b3b3b3; }
  h2 { border-color: #44484d; }
  .wide { --page: #16181b; --shadow: #fff5; }
  th, td { border-color: #33373c; }
  th { border-color: #8a8f96; }
  .results th:first-child, .results td:first-child { background: #16181b; }
  img { filter: invert(.9) hue-rotate(180deg); }
}
@media print {
  @page { margin: 15mm; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  .wide { overflow: visible; background: none; }
  table { font-size: 8pt; }
  th, td { padding: .15rem .35rem; }
  .results th:first-child, .results td:first-child { position: static; min-width: 0; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem; }
  h2, h3 { break-after: avoid; }
  tr { break-inside: avoid; }
}
"""


def html_page(document: Document) -> str:
    title = escape(document.title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<p>{escape(document.source)}</p>\n"
        + "".join(f"<p>{escape(note)}</p>\n" for note in document.left_out)
        + "".join(map(_section, document.sections))
        + "</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    common = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>\n" for key, value in section.common)
    return (
        f"<section>\n<h2>{escape(section.title)}</h2>\n"
        + _table(section.table, "results")
        + f'<div class="figures">\n{"".join(map(_figure, section.figures))}</div>\n'
        + (f"<h3>Configuration</h3>\n<dl>\n{common}</dl>\n" if common or section.configuration else "")
        + (_table(section.configuration, "options") if section.configuration else "")
        + "</section>\n"
    )


def _table(table: Table, kind: str) -> str:
    def row(tag: str, cells: list[str]) -> str:
        return "".join(
            f"<{tag}{' class=r' if letter == 'r' else ''}>{escape(cell)}</{tag}>"
            for cell, letter in zip(cells, table.alignment, strict=True)
        )

    body = "".join(
        f"<tr{' class=best' if i == table.best else ''}>{row('td', list(cells))}</tr>\n"
        for i, cells in enumerate(table.rows)
    )
    notes = "".join(f"<p>{escape(note)}</p>\n" for note in table.notes)
    return (
        f'<div class="wide">\n<table class="{kind}">\n<thead><tr>{row("th", list(table.header))}</tr>'
        f"</thead>\n<tbody>\n{body}</tbody>\n</table>\n</div>\n{notes}"
    )


def _figure(figure: RenderedFigure) -> str:
    data = b64encode(figure.png).decode("ascii")
    title = escape(figure.title)
    return (
        f'<figure>\n<img alt="{title}" src="data:image/png;base64,{data}">\n'
        f"<figcaption>{escape(figure.caption)}</figcaption>\n</figure>\n"
    )
