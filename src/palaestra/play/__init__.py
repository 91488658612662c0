"""Play: envs × team → `Turns`, behind executors."""
