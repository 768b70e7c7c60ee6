"""The archive: a folder with the rows that retention removed, a file for each day and kind of data."""

from tidegate.store.archive.files import Archive, ArchivedDay, archive_of
from tidegate.store.archive.lines import ArchivedRow

__all__ = ["Archive", "ArchivedDay", "ArchivedRow", "archive_of"]
