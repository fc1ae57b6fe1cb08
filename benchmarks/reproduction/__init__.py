"""Published results held against ours: docs/results.md. Every training run goes through `vrgd tune`."""
