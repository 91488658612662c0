"""Match: how much of what was wanted is in what was done: words, calls, boxes, evidence."""
