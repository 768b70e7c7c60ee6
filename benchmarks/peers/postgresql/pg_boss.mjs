// pg-boss: batches of 500, the next fetched at once while they are full, woken by LISTEN/NOTIFY.

import { PgBoss } from "pg-boss";

import { began } from "../moments.mjs";

const QUEUE = "noops";

export class Peer {
  constructor(url) {
    this.boss = new PgBoss({ connectionString: url, useListenNotify: true });
    this.boss.on("error", console.error);
  }

  async create() {
    await this.boss.start();
    await this.boss.createQueue(QUEUE, { notify: true });
    await this.boss.stop();
  }

  open() {
    return this.boss.start();
  }

  close() {
    return this.boss.stop({ graceful: false });
  }

  enqueue(number) {
    return this.boss.send(QUEUE, { number });
  }

  enqueueMany(numbers) {
    return this.boss.insert(QUEUE, numbers.map((number) => ({ data: { number } })));
  }

  async work() {
    await this.boss.start();
    await this.boss.work(QUEUE, { batchSize: 500, burstWhenBatchFull: true }, async (jobs) => {
      for (const job of jobs) began(job.data.number);
    });
  }
}
