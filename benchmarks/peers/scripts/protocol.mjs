// The same as protocol.py, for queues of Node.js. Copied beside the installed packages, so that imports find them.

import { readFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";

const PAYLOAD_BYTES = 200;
const PROGRESS_MILLISECONDS = 20;
const JITTER = 0.3;

export const TOPIC = "work";
export const options = JSON.parse(process.env.BENCH_OPTIONS ?? "{}");

/** What a handler does: it waits so many seconds, as if for another service; so many run at once. */
export const task = { seconds: 0, workers: null, ...JSON.parse(process.env.BENCH_TASK ?? "{}") };
export const runTask = () =>
  task.seconds ? new Promise((resolve) => setTimeout(resolve, task.seconds * 1000)) : undefined;

/** Nanoseconds of the machine's monotonic clock; a number is exact for a hundred days of uptime. */
export const now = () => Number(process.hrtime.bigint());

/** A message that is 200 bytes long as JSON. */
export function body(n, at = 0) {
  const bare = { n, at, fill: "" };
  return { ...bare, fill: "x".repeat(PAYLOAD_BYTES - JSON.stringify(bare).length) };
}

export const bodies = (first, count) => Array.from({ length: count }, (_, i) => body(first + i));

export function installed(...names) {
  const version = (name) =>
    JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version;
  return { ...Object.fromEntries(names.map((name) => [name, version(name)])), Node: process.versions.node };
}

class Recorder {
  ids = [];
  latencies = [];
  first = 0;

  constructor(mode) {
    this.mode = mode;
    this.timed = mode !== "drain";
  }

  handled(id, message) {
    if (!this.first) this.first = now();
    if (this.timed) this.latencies.push([message.n, now() - message.at, message.at]);
    this.ids.push(id);
  }
}

function control(recorder) {
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  return {
    async ready() {
      process.stdout.write("ready\n");
      if ((await lines.next()).value !== "go") process.exit(1);
      if (recorder.mode !== "drain" && recorder.mode !== "steady") return;
      let told = 0;
      const tell = () => {
        if (recorder.ids.length === told) return;
        told = recorder.ids.length;
        process.stdout.write(`n ${told} ${recorder.first}\n`);
      };
      setInterval(tell, PROGRESS_MILLISECONDS).unref();
    },
    stopped: () => lines.next(),
  };
}

async function paced(count, milliseconds, call) {
  const calls = [];
  let due = performance.now();
  for (let n = 0; n < count; n++) {
    due += milliseconds * (1 - JITTER + 2 * JITTER * Math.random());
    const wait = due - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    const at = now();
    await call(n, at);
    calls.push(now() - at);
  }
  return calls;
}

/** Do what the command line says; see protocol.py. */
export async function main(program) {
  const [command, url, ...rest] = process.argv.slice(2);
  if (command === "versions") {
    console.log(JSON.stringify(program.versions()));
  } else if (command === "schema") {
    await program.schema(url);
  } else if (command === "fill") {
    await program.fill(url, Number(rest[0]));
  } else if (command === "enqueue") {
    const calls = await program.enqueue(url, (call) => paced(Number(rest[0]), Number(rest[1]), call));
    writeFileSync(rest[2], JSON.stringify({ calls }));
  } else if (command === "work") {
    const recorder = new Recorder(rest[0]);
    await program.work(url, recorder, control(recorder));
    const { ids, first, latencies } = recorder;
    writeFileSync(rest[1], JSON.stringify({ ids: ids.map(String), first, latencies }));
  } else {
    throw new Error(`unknown command ${command}`);
  }
  process.exit(0);
}
