"""Operations that both back ends share. These modules run the statements of a `session.Session`."""
