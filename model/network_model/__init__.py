"""The model of a network of links: context, memories, training."""
