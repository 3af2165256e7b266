"""`tensorion export`: the metrics of runs for other tools."""
