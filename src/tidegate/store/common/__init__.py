"""Operations that both back ends share. They run the statements of a `session.Session`."""
