"""The metrics that monitoring systems read, for Prometheus.

`catalogue` lists every metric, `reading` reads the store once for a scrape, `samples` computes the values,
and `exposition` writes them in Prometheus' text format.
"""
