"""The paper's experiments: cells are trained and evaluated once, tables and figures rendered from their records."""
