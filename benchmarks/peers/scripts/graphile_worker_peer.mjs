// graphile-worker, with the settings of its performance page and of its own test (perfTest/graphile.config.js).

import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { TOPIC, bodies, body, installed, main, options, runTask, task } from "./protocol.mjs";

const STEP = 1000;
const quiet = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

await main({
  versions: () => installed("graphile-worker", "pg"),

  schema: (connectionString) => runMigrations({ connectionString, logger: quiet }),

  async fill(connectionString, count) {
    const utils = await makeWorkerUtils({ connectionString, logger: quiet });
    for (let first = 0; first < count; first += STEP) {
      const messages = bodies(first, Math.min(STEP, count - first));
      await utils.addJobs(messages.map((payload) => ({ identifier: TOPIC, payload })));
    }
    await utils.release();
  },

  async enqueue(connectionString, paced) {
    const pgPool = new pg.Pool({ connectionString, max: 1 });
    const utils = await makeWorkerUtils({ pgPool, logger: quiet });
    const calls = await paced((n, at) => utils.addJob(TOPIC, body(n, at)));
    await utils.release();
    return calls;
  },

  async work(connectionString, recorder, control) {
    const taskList = {
      [TOPIC]: (payload, helpers) => {
        recorder.handled(helpers.job.id, payload);
        return runTask();
      },
    };
    const workers = task.workers ? { concurrentJobs: task.workers } : {};
    await control.ready();
    const runner = await run({
      connectionString,
      logger: quiet,
      noHandleSignals: true,
      taskList,
      preset: { worker: { connectionString, crontabFile: "/nonexistent", ...options, ...workers } },
    });
    await control.stopped();
    await runner.stop();
  },
});
