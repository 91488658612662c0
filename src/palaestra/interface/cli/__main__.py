"""`python -m palaestra.interface.cli`."""

from palaestra.interface.cli import main

if __name__ == "__main__":
    main()
