"""What monitoring systems read: metrics for Prometheus.

`catalogue` lists every metric, `reading` reads the store once for a scrape, `samples` computes the values,
and `exposition` writes them in Prometheus' text format.
"""
