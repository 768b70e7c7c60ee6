"""Throughput, latency and memory of Tidegate, each next to the limit of the same machine in one run."""
