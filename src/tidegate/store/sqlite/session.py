"""Run jobs in transactions: one snapshot for readers, one group commit for writers.

A session belongs to one thread and does not use event loops. The session sets the value or error of each job,
with the errors of the store contract, and stays usable after every error.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import apsw

from tidegate.errors import TidegateError
from tidegate.store.sqlite.errors import BROKEN, busy, wrap
from tidegate.store.sqlite.file import DatabaseFile, FileLocation
from tidegate.store.sqlite.job import Job

AnyJob = Job[Any]

_AT_ONCE_SECONDS = 0.001
"""A transaction that begins faster than this did not wait for another transaction."""


def _none() -> Iterable[AnyJob]:
    return ()


class JobSession:
    """Runs jobs on the store's file.

    Args:
        location: Where the database file is.
        busy_seconds: How long a job may wait to begin.
    """

    def __init__(self, location: FileLocation, *, busy_seconds: float) -> None:
        self.quiet = threading.Lock()
        """Held while SQLite runs. A fork waits for it, so that no locked SQLite mutex is copied."""
        self.commits = 0
        """Number of transactions that changed something."""
        self._busy_seconds = busy_seconds
        self._file = DatabaseFile(location, busy_seconds=busy_seconds)
        self._is_doubtful = False

    def read(self, jobs: Sequence[AnyJob]) -> None:
        """Run these jobs in one snapshot."""
        taken = [job for job in jobs if job.take()]
        try:
            with self.quiet:
                db = self._connection()
                db.execute("BEGIN")
                try:
                    for job in taken:
                        self._do(db, job)
                finally:
                    _roll_back(db)
        except Exception as error:
            self._fail(taken, error)

    def write(self, jobs: Sequence[AnyJob], late: Callable[[], Iterable[AnyJob]] = _none) -> list[AnyJob]:
        """Run these jobs, and the jobs that `late` yields once the lock is held, in one commit.

        An error in one job undoes only that job. A job that could not begin in time is not run. The result
        has all jobs, each with its value or error.
        """
        group = undone = list(jobs)
        try:
            undone = self._after_prechecks(group)
            if undone:
                with self._file.lock.held():
                    joined = list(late())
                    group = group + joined
                    undone = undone + joined
                    with self.quiet:
                        self._commit(self._file.open_connection() or self._connection(), undone)
        except Exception as error:
            self._fail(undone, error)
        return group

    def bare(self, job: AnyJob) -> None:
        """Run one job outside any transaction, on a connection whose schema is not checked."""
        if not job.take():
            return
        try:
            with self.quiet:
                job.value = job.work(self._connection(checked=False))
                self.commits += 1
        except Exception as error:
            self._fail([job], error)

    def close(self) -> None:
        """Close the file. Safe to repeat; the next job opens it again."""
        with self.quiet:
            self._file.close()

    def forget(self) -> apsw.Connection | None:
        """Forget the connection in a forked child; return the inherited one, which must never be closed."""
        self.quiet = threading.Lock()
        return self._file.forget()

    # --- writing ---

    def _after_prechecks(self, group: Sequence[AnyJob]) -> list[AnyJob]:
        """Return the jobs that need the write lock: those whose precheck has no result.

        Prechecks run only if every job has one. A group of jobs that needs the lock anyway runs without
        prechecks, on a connection that is checked once the lock is held.
        """
        needs_lock = any(job.precheck is None for job in group)
        if needs_lock and self._file.is_ready and not self._is_doubtful:
            return list(group)
        with self.quiet:
            db = self._connection()
            if needs_lock:
                return list(group)
            db.execute("BEGIN")
            try:
                return [job for job in group if not self._run_precheck(db, job)]
            finally:
                _roll_back(db)

    @staticmethod
    def _run_precheck(db: apsw.Connection, job: AnyJob) -> bool:
        """Return whether the precheck has the job's result. If it fails, the work will report the error."""
        assert job.precheck is not None
        try:
            answer = job.precheck(db)
        except Exception:
            return False
        if answer is not None and job.take():
            job.value = answer
        return answer is not None

    def _commit(self, db: apsw.Connection, group: Sequence[AnyJob]) -> None:
        if not self._begin(db, group):
            return
        taken = [job for job in group if job.take()]
        changes = db.total_changes()
        try:
            is_whole = self._do_all(db, taken)
            if is_whole:
                db.execute("COMMIT")
                self._file.identity.committed(db)
                self.commits += db.total_changes() != changes
        finally:
            _roll_back(db)
        if not is_whole:
            self._one_by_one(taken)

    def _begin(self, db: apsw.Connection, group: Sequence[AnyJob]) -> bool:
        """Begin the transaction; return False if every job expires before that."""
        while True:
            self._file.require_same_file_locked()
            began_at = time.monotonic()
            try:
                db.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                for job in group:
                    if job.is_late and job.take():
                        job.error = busy(self._busy_seconds, str(self._file.path))
                if all(job.is_late for job in group):
                    return False
            else:
                # The file may have been replaced while this waited for another program's transaction.
                if time.monotonic() - began_at < _AT_ONCE_SECONDS or self._is_unchanged(db):
                    return True

    def _is_unchanged(self, db: apsw.Connection) -> bool:
        """Return whether the file is the same as before the transaction; if not, roll back."""
        is_unchanged = False
        try:
            is_unchanged = self._file.identity.is_unchanged()
        finally:
            if not is_unchanged:
                _roll_back(db)
        return is_unchanged

    def _do_all(self, db: apsw.Connection, taken: Sequence[AnyJob]) -> bool:
        """Run each job; return False if there is nothing to commit, because all was rolled back or failed."""
        several = len(taken) > 1
        for job in taken:
            if several:
                db.execute("SAVEPOINT job")
            self._do(db, job)
            if job.error is not None:
                if not several or not db.in_transaction:
                    return False
                db.execute("ROLLBACK TO job")
            if several:
                db.execute("RELEASE job")
        return True

    def _one_by_one(self, taken: Sequence[AnyJob]) -> None:
        """Run each job that has not failed in its own transaction."""
        for job in taken:
            if job.error is not None:
                continue
            try:
                db = self._connection()
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._do(db, job)
                    if job.error is None:
                        db.execute("COMMIT")
                        self._file.identity.committed(db)
                        self.commits += 1
                finally:
                    _roll_back(db)
            except Exception as error:
                self._fail([job], error)

    # --- the connection and its errors ---

    def _connection(self, *, checked: bool = True) -> apsw.Connection:
        if self._is_doubtful:
            self._file.drop()
            self._is_doubtful = False
        return self._file.connection(checked=checked)

    def _do(self, db: apsw.Connection, job: AnyJob) -> None:
        try:
            job.value = job.work(db)
        except Exception as error:
            self._note(job, error)

    def _fail(self, jobs: Iterable[AnyJob], error: Exception) -> None:
        """Set this error on every job that has no error yet: the transaction was rolled back."""
        for job in jobs:
            job.take()
            if job.error is None:
                self._note(job, error)

    def _note(self, job: AnyJob, error: Exception) -> None:
        if isinstance(error, BROKEN):
            self._is_doubtful = True
        job.value = None
        if isinstance(error, TidegateError):
            # Several callers may get the error, each with its own traceback.
            job.error = copy.copy(error)
            job.error.__cause__ = error.__cause__
        else:
            job.error = wrap(error, str(self._file.path), self._busy_seconds)


def _roll_back(db: apsw.Connection) -> None:
    # After a disk error SQLite has rolled back by itself, and the connection is not used again.
    with suppress(apsw.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")
