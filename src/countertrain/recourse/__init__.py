"""Recourse: what each person could change for another decision, in their own units."""
