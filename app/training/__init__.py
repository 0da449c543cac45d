"""Training of models: a link's own, a network's, retrain runs on processes or a cluster."""
