"""What calls cost: a backlog above the quota, an outage and its end, poison; next to an attainable ideal."""
