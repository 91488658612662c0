"""User interface: the command line and the pages."""
