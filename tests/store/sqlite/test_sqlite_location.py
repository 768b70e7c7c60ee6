"""The location of the file, its permissions, the configuration of SQLite, and the clock."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlite_support import run_sql
from store_build import Build

from tidegate.errors import ConfigError
from tidegate.store.sqlite import connection
from tidegate.store.sqlite.clock import HighWaterClock
from tidegate.store.sqlite.store import SqliteStore

MOUNTS = """\
21 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 21 0:40 / /mnt/share rw,relatime shared:2 - nfs4 server:/share rw,vers=4.2
31 21 0:41 / /mnt/share/local rw,relatime - ext4 /dev/vdb rw
32 21 0:42 / /mnt/two\\040words rw,relatime - cifs //server/share rw
33 21 0:43 / /mnt/sshfs rw - fuse.sshfs host: rw
34 21 0:44 / /mnt/ntfs rw - fuseblk /dev/sda1 rw
35 21 0:45 / /mnt/windows rw - 9p C: rw
36 21 0:46 / /dev/shm rw - tmpfs tmpfs rw
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    return file


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/queue.db", "ext4"),
        ("/mnt/share/queue.db", "nfs4"),
        ("/mnt/share/sub/queue.db", "nfs4"),
        ("/mnt/shared/queue.db", "ext4"),
        ("/mnt/share/local/queue.db", "ext4"),
        ("/mnt/two words/queue.db", "cifs"),
        ("/mnt/sshfs/queue.db", "fuse.sshfs"),
        ("/dev/shm/queue.db", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_found(mounts: Path, path: str, kind: str) -> None:
    assert connection.file_system_of(Path(path), mounts) == kind


def test_a_path_with_an_unknown_file_system_is_accepted(tmp_path: Path) -> None:
    assert connection.file_system_of(tmp_path / "queue.db", tmp_path / "nothing") == ""


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "fuse", "9p", "ceph", "vboxsf"]
)
async def test_a_network_file_system_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(connection, "file_system_of", lambda _: kind)
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match=kind) as caught:
        await store.open()
    assert connection.ALLOW_NETWORK_FS in caught.value.fix
    assert not path.exists()
    await store.close()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "apfs", "fuseblk", ""])
async def test_a_local_file_system_is_used(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(connection, "file_system_of", lambda _: kind)
    store = SqliteStore(path)
    await store.open()
    await store.close()


@pytest.mark.parametrize("kind", ["virtiofs", "gpfs", "beegfs", "drvfs", "orangefs"])
async def test_a_file_system_that_may_be_shared_logs_one_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    monkeypatch.setattr(connection, "file_system_of", lambda _: kind)
    for _ in range(2):
        store = SqliteStore(path)
        await store.open()
        await store.close()
    [warning] = [record.getMessage() for record in caplog.records if record.name == "tidegate.store"]
    assert kind in warning


async def test_a_network_file_system_can_be_allowed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "file_system_of", lambda _: "nfs")
    monkeypatch.setenv(connection.ALLOW_NETWORK_FS, "1")
    store = SqliteStore(path)
    await store.open()
    await store.close()


async def test_a_sqlite_build_without_required_extensions_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection.apsw, "compile_options", ())
    store = SqliteStore(path)
    with pytest.raises(ConfigError, match="carray"):
        await store.open()
    await store.close()


async def test_every_file_is_readable_by_its_owner_only(store: SqliteStore, build: Build, path: Path) -> None:
    await build.one()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert set(modes) == {"queue.db", "queue.db-wal", "queue.db-shm", "queue.db.lock"}
    assert set(modes.values()) == {0o600}


async def test_the_mode_of_an_existing_file_is_not_changed(path: Path) -> None:
    path.parent.mkdir()
    path.touch(mode=0o640)
    path.chmod(0o640)
    store = SqliteStore(path)
    await store.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    await store.close()


@pytest.mark.parametrize(
    ("pragma", "setting"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 0),
        ("mmap_size", 0),
        ("wal_autocheckpoint", 0),
        ("journal_size_limit", 64 * 2**20),
        ("temp_store", 2),
    ],
)
async def test_sqlite_is_configured_for_durability(store: SqliteStore, pragma: str, setting: object) -> None:
    assert await run_sql(store, f"PRAGMA {pragma}") == [(setting,)]


async def test_a_relative_path_is_resolved_when_the_store_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("queue.db")
    monkeypatch.chdir("/")
    await store.open()
    await store.close()
    assert (tmp_path / "queue.db").exists()


class Clocks:
    """A wall clock and a steady one, set by hand."""

    def __init__(self) -> None:
        self.wall = 1_000.0
        self.steady = 50.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


def test_the_clock_follows_time() -> None:
    clocks = Clocks()
    now = HighWaterClock(wall=lambda: clocks.wall, steady=lambda: clocks.steady)
    assert now() == 1_000.0
    clocks.pass_time(2.5)
    assert now() == 1_002.5


def test_a_wall_clock_set_back_does_not_stop_or_reverse_the_clock() -> None:
    clocks = Clocks()
    now = HighWaterClock(wall=lambda: clocks.wall, steady=lambda: clocks.steady)
    clocks.wall -= 600
    assert now() == 1_000.0
    clocks.pass_time(10)
    assert now() == 1_010.0
    clocks.pass_time(700)
    assert now() == 1_710.0


def test_the_clock_follows_a_wall_clock_set_forward_or_a_sleeping_host_at_once() -> None:
    clocks = Clocks()
    now = HighWaterClock(wall=lambda: clocks.wall, steady=lambda: clocks.steady)
    clocks.wall += 3_600  # the steady clock stood still
    assert now() == 4_600.0
    clocks.wall -= 3_600
    assert now() == 4_600.0
    clocks.pass_time(1)
    assert now() == 4_601.0


def test_the_clock_never_goes_back_for_any_wall_clock() -> None:
    walls = iter([5.0, 3.0, 9.0, 1.0, 8.0, 20.0, 0.0, 19.0])
    ticks = iter(range(100))
    now = HighWaterClock(wall=lambda: next(walls), steady=lambda: next(ticks) * 0.001)
    reported = [now() for _ in range(7)]
    assert reported == sorted(reported)
