// The client's loops for queues on Node, and the way into their workers: the twin of client.py.
//
//   node client.mjs ./postgresql/graphile_worker.mjs WHAT '{"n": …}'

import { setTimeout as sleep } from "node:timers/promises";

import { seconds, untilBegun } from "./moments.mjs";

const BATCH = 1_000;

async function many(queue, n) {
  for (let first = 0; first < n; first += BATCH) {
    const count = Math.min(BATCH, n - first);
    await queue.enqueueMany(Array.from({ length: count }, (_, place) => first + place));
  }
}

const LOOPS = {
  async fill(queue, { n }) {
    await many(queue, n);
    return {};
  },
  async bulk(queue, { n }) {
    const beganAt = seconds();
    await many(queue, n);
    return { rate: n / (seconds() - beganAt) };
  },
  async single(queue, { n }) {
    await queue.enqueue(n); // the first finds cold caches
    const beganAt = seconds();
    for (let number = 0; number < n; number++) await queue.enqueue(number);
    return { rate: n / (seconds() - beganAt) };
  },
  async pickup(queue, { n, pause }) {
    await queue.enqueue(0);
    await untilBegun(0);
    const asked = [];
    for (let number = 1; number <= n; number++) {
      await sleep(pause * 1_000);
      asked.push(seconds());
      await queue.enqueue(number);
    }
    return { asked };
  },
};

const [module, what, options] = process.argv.slice(2);
const { Peer } = await import(module);
const queue = new Peer(process.env.BENCH_URL);
if (what === "work") {
  await queue.work();
} else if (what === "create") {
  await queue.create();
  console.log("{}");
  process.exit(0);
} else {
  await queue.open();
  const values = await LOOPS[what](queue, JSON.parse(options));
  await queue.close();
  console.log(JSON.stringify(values));
  process.exit(0);
}
