#!/usr/bin/env node
// Holds a lock while an async function runs. It ends with this process, however that ends.
import { execFile } from "node:child_process";

function lockkeeper(...words) {
  return new Promise((resolve) => {
    execFile("lockkeeper", ["--json", ...words], (_, stdout) => resolve(JSON.parse(stdout)));
  });
}

async function withLock(name, wait, work) {
  const answer = await lockkeeper("acquire", name, `--wait=${wait}`, `--pid=${process.pid}`);
  if (answer.status !== "acquired") throw new Error(answer.message ?? answer.error.message);
  try {
    return await work(answer.lease);
  } finally {
    await lockkeeper("release", answer.lease.id);
  }
}

await withLock("db", process.argv[2], async () => console.log("migrating"));
