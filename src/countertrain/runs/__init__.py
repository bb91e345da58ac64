"""Experiments: settings by name, run directories, evaluation of runs, demo and benchmarks."""
