"""`python -m palaestra` and `torchrun -m palaestra`: the command line."""

from palaestra.interface.cli import main

if __name__ == "__main__":
    main()
