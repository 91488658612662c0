"""How a language model is run: its own forward pass, and how tokens are drawn."""
