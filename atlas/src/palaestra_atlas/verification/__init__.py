"""Computes whether systems work: source edits, tracing of calls, uses beside their absence, evidence."""
