"""Where rows come from: files, converted folders, the paper's data sets, synthetic ones, and images."""
