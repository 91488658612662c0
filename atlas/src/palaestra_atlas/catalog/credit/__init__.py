"""Reproductions of credit assignment."""
