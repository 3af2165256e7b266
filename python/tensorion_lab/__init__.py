"""The program `tensorion`."""
