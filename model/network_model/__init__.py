"""The model of a network of links: context, linear base, memories, training."""
