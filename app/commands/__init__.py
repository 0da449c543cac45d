"""The commands of ``flowcast``, a module each; ``app.cli`` puts them together."""
