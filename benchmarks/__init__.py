"""Throughput, latency and memory of Tidegate, each beside the limit of the same machine in the same run."""
