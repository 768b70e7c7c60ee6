"""What both back ends write alike, once, over the statements of `session.Session`."""
