"""``python -m gdkl`` is ``gdkl``."""

from gdkl.cli import main

if __name__ == "__main__":
    main()
