"""Trained models as files: arrays and a JSON manifest, without pickle."""
