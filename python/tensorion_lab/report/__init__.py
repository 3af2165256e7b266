"""`tensorion report`: turns result folders into figures, tables and one HTML page.

Each kind of results has a module that creates sections of a document: `training` for the runs of `tensorion train`
and `tensorion compare`, `confusion` for `tensorion eval`, and `laplace` and `tightness` for the experiments with
these names. `experiments` detects the kind of a folder. `document` defines the classes of a document, `table` prints
its tables, and `page` renders it as HTML. `canvas` and `style` draw the figures.
"""
