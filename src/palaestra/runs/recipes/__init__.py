"""The YAML of the recipes that ship."""
