// graphile-worker as its page on performance runs it: 24 jobs at once, a local queue of 500, completions in batches.
import { compete, dsn, load } from "./contestant.mjs";

const { Logger, makeWorkerUtils, run } = load("graphile-worker");
const BATCH = 1000;
const preset = {
  worker: {
    connectionString: dsn,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: new Logger(() => () => {}),
  },
};
const utils = await makeWorkerUtils({ preset });
await utils.migrate();
await compete({
  async send(bodies) {
    for (let start = 0; start < bodies.length; start += BATCH) {
      const chunk = bodies.slice(start, start + BATCH);
      await utils.addJobs(chunk.map((body) => ({ identifier: "handle", payload: { body } })));
    }
  },
  async start(called) {
    const runner = await run({ preset, taskList: { handle: async () => called() }, noHandleSignals: true });
    return () => runner.stop();
  },
});
await utils.release();
