"""One HTML page about a classifier, for those who answer for its decisions."""
