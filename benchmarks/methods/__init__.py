"""Every training method in one comparison, each tuned by as many trials: `make methods`."""
