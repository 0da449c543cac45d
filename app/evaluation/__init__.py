"""Evaluation: the paper's four methods on a file of counts, link by link, and a report of it."""
