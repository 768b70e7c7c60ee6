"""Pure decisions about a redrive: which letters go first, whether to go on, how many letters to send now."""
