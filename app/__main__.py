"""``python -m app``: the ``flowcast`` command."""

from app.cli import main

if __name__ == "__main__":  # processes that serve read this module again, under another name
    main()
