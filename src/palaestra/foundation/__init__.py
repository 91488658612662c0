"""Foundation: what has no notion of turns: names, files, folders of checksums, YAML, progress, archives, search."""
