"""Trained models as files: arrays and a JSON manifest, written and read without pickle."""
