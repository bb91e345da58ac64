"""For people with a table and decisions to explain: columns in their own units, a classifier, and recourse."""
