"""The command-line program `tensorion`: its console script, reports and exports."""
