"""`python -m palaestra.cli`."""

from palaestra.cli import main

if __name__ == "__main__":
    main()
