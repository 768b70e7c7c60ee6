"""Outside services that tasks call: their limits and gates, and the transport that keeps to them."""
