"""The limit: a hand-written asyncpg loop that does the least a durable queue can, 500 tasks a batch.

It claims by moving rows from `ready` to `lease` (an array of ctids: a TID scan), runs the same coroutines and
moves what is done to `archive`; two commits a batch. It has no fence, no lanes, no retries, no limits, and is
woken by LISTEN. Its rows are the fewest that serve; an enqueue of Tidegate's own rows is in `same_rows.py`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence

import asyncpg

from benchmarks.peers.contract import PeerQueue
from benchmarks.peers.start_times import began

BATCH = 500

_TABLES = """
CREATE TABLE payload (id bigint PRIMARY KEY, args bytea NOT NULL);
CREATE TABLE ready (id bigint NOT NULL, priority smallint NOT NULL, run_at timestamptz NOT NULL);
CREATE INDEX ON ready (priority, run_at, id);
CREATE TABLE lease (id bigint PRIMARY KEY, worker bigint NOT NULL, started_at timestamptz NOT NULL);
CREATE TABLE waiting (id bigint PRIMARY KEY, due_at timestamptz NOT NULL);
CREATE INDEX ON waiting (due_at);
CREATE TABLE archive (id bigint PRIMARY KEY, state smallint NOT NULL, finished_at timestamptz NOT NULL);
"""
_ENQUEUE = """
WITH stored AS (INSERT INTO payload (id, args) VALUES ($1, $2))
INSERT INTO ready (id, priority, run_at) VALUES ($1, 0, now())"""
_ASK = """
WITH stored AS (INSERT INTO payload (id, args) VALUES ($1, $2)),
placed AS (INSERT INTO ready (id, priority, run_at) VALUES ($1, 0, now()))
SELECT pg_notify('ready', '')"""
_CLAIM = """
WITH gone AS (
    DELETE FROM ready
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ready ORDER BY priority, run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
), leased AS (
    INSERT INTO lease (id, worker, started_at) SELECT id, 1, clock_timestamp() FROM gone
)
SELECT payload.id, payload.args FROM gone JOIN payload USING (id)"""
_FINISH = """
WITH gone AS (DELETE FROM lease WHERE id = ANY ($1) RETURNING id)
INSERT INTO archive (id, state, finished_at) SELECT id, 1, clock_timestamp() FROM gone"""


class Peer(PeerQueue):
    async def create(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(_TABLES)
        await connection.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self.connection.close()

    async def enqueue(self, number: int) -> None:
        await self.connection.execute(_ENQUEUE, number, _args(number))

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        async with self.connection.transaction():
            payloads = [(number, _args(number)) for number in numbers]
            await self.connection.copy_records_to_table("payload", records=payloads)
            now = await self.connection.fetchval("SELECT now()")
            ready = [(number, 0, now) for number in numbers]
            await self.connection.copy_records_to_table("ready", records=ready)

    async def ask(self, number: int) -> None:
        await self.connection.fetchval(_ASK, number, _args(number))

    async def work(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
        connection = await asyncpg.connect(self.url)
        woken = asyncio.Event()
        await connection.add_listener("ready", lambda *_: woken.set())
        claim, finish = await connection.prepare(_CLAIM), await connection.prepare(_FINISH)
        while True:
            woken.clear()
            rows = await claim.fetch(BATCH)
            if not rows:
                await woken.wait()
                continue
            await asyncio.gather(*(_body(row["args"]) for row in rows))
            await finish.fetch([row["id"] for row in rows])


def _args(number: int) -> bytes:
    return b'{"number": %d}' % number


async def _body(args: bytes) -> None:
    began(json.loads(args)["number"])
