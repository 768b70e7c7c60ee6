"""Pure decisions about a redrive: which dead letters go first, whether to go on, how many to send now."""
