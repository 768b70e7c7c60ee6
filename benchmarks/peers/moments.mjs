// When each task's body began: the twin of moments.py, with the same file and the same clock.

import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const FLUSH_MS = 5;

export const seconds = () => Number(process.hrtime.bigint()) / 1e9; // the system's monotonic clock, as Python's

const path = process.env.BENCH_MOMENTS;
let moments;
let isChanged = false;

// Note that the body of this task begins now. The file is written every few milliseconds: Node cannot map it.
export function began(number) {
  if (!moments) {
    moments = new Float64Array(fs.statSync(path).size / 8);
    setInterval(flush, FLUSH_MS).unref();
  }
  moments[number] = seconds();
  isChanged = true;
}

function flush() {
  if (!isChanged) return;
  isChanged = false;
  const file = fs.openSync(path, "r+");
  fs.writeSync(file, new Uint8Array(moments.buffer));
  fs.closeSync(file);
}

export async function untilBegun(number) {
  const slot = Buffer.alloc(8);
  const file = fs.openSync(path, "r");
  do {
    await sleep(10);
    fs.readSync(file, slot, 0, 8, number * 8);
  } while (slot.readDoubleLE() === 0);
  await sleep(1_000); // the worker is idle again
}
