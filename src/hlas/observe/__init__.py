"""What went on: metrics, traces, traffic, incidents."""
