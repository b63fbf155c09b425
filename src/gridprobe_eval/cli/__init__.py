"""The verbs plan, eval, status, score, report and calibrate."""
