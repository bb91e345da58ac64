"""Counterfactual search: one loop, and generators composed of penalties, a state space and a step rule."""
