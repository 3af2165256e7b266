"""`tensorion export`: writes the metrics of runs for other tools."""
