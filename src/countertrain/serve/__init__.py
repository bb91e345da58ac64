"""The recourse service: an HTTP API for a fitted classifier, and a page on which its decisions are explained."""
