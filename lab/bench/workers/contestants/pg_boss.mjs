// pg-boss with batches of 500, the next fetched while batches are full, and LISTEN for a single job.
import { compete, dsn, load } from "./contestant.mjs";

const { PgBoss } = load("pg-boss");
const QUEUE = "bench";
const BATCH = 1000;
const boss = new PgBoss({ connectionString: dsn, useListenNotify: true });
boss.on("error", console.error);
await boss.start();
await boss.createQueue(QUEUE, { notify: true });
await compete({
  async send(bodies) {
    for (let start = 0; start < bodies.length; start += BATCH) {
      await boss.insert(QUEUE, bodies.slice(start, start + BATCH).map((body) => ({ data: { body } })));
    }
  },
  async start(called) {
    const options = { batchSize: 500, burstWhenBatchFull: true, orderByCreatedOn: false };
    await boss.work(QUEUE, options, async (jobs) => jobs.forEach(called));
    return () => boss.offWork(QUEUE);
  },
});
await boss.stop();
