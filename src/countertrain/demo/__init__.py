"""The main job on embedded data."""
