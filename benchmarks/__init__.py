"""Scripts that print ratios; what they printed, and on which machine, is in results/."""
