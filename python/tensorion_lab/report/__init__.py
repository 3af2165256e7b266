"""`tensorion report`: what runs left on disk, as figures, tables and one page.

A kind of report is a module that turns what it read into the sections of a document: `training` does so
for the runs of `tensorion train` and `tensorion compare`, `laplace` and `tightness` for the experiments
of those names (`experiments` says which folder is which). `document` says what a document is; `table`
prints its tables, `page` makes it one HTML page; `canvas` and `style` are what figures are drawn with.
"""
