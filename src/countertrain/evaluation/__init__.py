"""Evaluation: metrics of counterfactuals, robustness, attribution, and the paper's protocol."""
