"""Scores of runs as tables, and runs as one HTML page."""
