// graphile-worker: a local queue of 500, 24 at once, finished jobs completed in batches (delay 0).

import { makeWorkerUtils, run, runMigrations, Logger } from "graphile-worker";

import { began } from "../moments.mjs";

const logger = new Logger(() => () => {});

export class Peer {
  constructor(url) {
    this.preset = { worker: { connectionString: url, logger } };
  }

  create() {
    return runMigrations({ preset: this.preset });
  }

  async open() {
    this.utils = await makeWorkerUtils({ preset: this.preset });
  }

  close() {
    return this.utils.release();
  }

  enqueue(number) {
    return this.utils.addJob("noop", { number });
  }

  enqueueMany(numbers) {
    return this.utils.addJobs(numbers.map((number) => ({ identifier: "noop", payload: { number } })));
  }

  async work() {
    const worker = {
      ...this.preset.worker,
      concurrentJobs: 24,
      maxPoolSize: 24,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
    };
    const taskList = { noop: async ({ number }) => began(number) };
    await (await run({ preset: { worker }, taskList })).promise;
  }
}
