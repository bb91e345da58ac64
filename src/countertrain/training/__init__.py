"""Counterfactual training: rows made beside a mini-batch, the terms that look at them, and the loop."""
