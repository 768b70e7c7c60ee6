"""What calls cost: a backlog above the quota, an outage and its end, poison; beside an attainable ideal."""
