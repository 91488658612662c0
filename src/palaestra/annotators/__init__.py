"""Annotators: what adds columns to a table with the help of a model or a tool. After that, all is algebra again."""

from palaestra.annotators.asking import asking
from palaestra.annotators.language_server import LanguageServer, bundle_id
from palaestra.annotators.workspaces import Bundles, PythonSyntax, check_turns

__all__ = ["Bundles", "LanguageServer", "PythonSyntax", "asking", "bundle_id", "check_turns"]
