// pg-boss, woken by LISTEN/NOTIFY, in batches (docs/api/workers.md).

import { PgBoss } from "pg-boss";
import { TOPIC, bodies, body, installed, main, options, runTask, task } from "./protocol.mjs";

const STEP = 1000;

function boss(connectionString, more = {}) {
  const made = new PgBoss({ connectionString, ...more });
  made.on("error", (error) => console.error(error));
  return made;
}

const producer = (url) => boss(url, { supervise: false, schedule: false });

await main({
  versions: () => installed("pg-boss", "pg"),

  async schema(url) {
    const made = boss(url, { supervise: false, schedule: false });
    await made.start();
    await made.createQueue(TOPIC, { notify: true });
    await made.stop({ graceful: false });
  },

  async fill(url, count) {
    const made = producer(url);
    await made.start();
    for (let first = 0; first < count; first += STEP) {
      const messages = bodies(first, Math.min(STEP, count - first));
      await made.insert(TOPIC, messages.map((data) => ({ data })));
    }
    await made.stop({ graceful: false });
  },

  async enqueue(url, paced) {
    const made = producer(url);
    await made.start();
    const calls = await paced((n, at) => made.send(TOPIC, body(n, at)));
    await made.stop({ graceful: false });
    return calls;
  },

  async work(url, recorder, control) {
    const made = boss(url, { useListenNotify: true });
    await made.start();
    await control.ready();
    const workers = task.workers ? { localConcurrency: task.workers } : {};
    await made.work(TOPIC, { ...options, ...workers }, async (jobs) => {
      for (const job of jobs) recorder.handled(job.id, job.data);
      await runTask();
    });
    await control.stopped();
    await made.stop({ graceful: true, timeout: 10000 });
  },
});
