"""Evaluation: a benchmark, a model and settings in; one record per question out, whatever happens on the way."""
