// The marks of lab/bench/workers/contestant.py for Node.js; arguments: folder of packages, DSN, jobs, latencies, bodies.
import { readFileSync, readSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

const [folder, dsn, count, latencyCount, file] = process.argv.slice(2);

export { dsn };
export const load = createRequire(`${folder}/`);

function mark(name) {
  writeSync(1, `@${name}\n`);
  readSync(0, Buffer.alloc(1));
}

// `send(bodies)` sends jobs; `start()` starts a worker whose handler calls `called`, and returns how to stop it.
export async function compete({ send, start }) {
  const texts = JSON.parse(readFileSync(file, "utf8"));
  const bodies = Array.from({ length: Number(count) }, (_, number) => JSON.parse(texts[number % texts.length]));
  let calls = 0;
  let called;
  const handled = new Promise((resolve) => {
    called = () => {
      calls += 1;
      if (calls === 1) mark("began");
      if (calls === bodies.length) {
        mark("handled");
        resolve();
      }
    };
  });
  mark("sending");
  await send(bodies);
  mark("sent");
  let stop = await start(() => called());
  await handled;
  await stop();
  mark("settled");

  stop = await start(() => called());
  const latencies = [];
  for (let number = 0; number <= Number(latencyCount); number += 1) {
    // The first is not counted: the worker may not be listening yet.
    await sleep(number ? 5 + 35 * Math.random() : 1000);
    const arrived = new Promise((resolve) => {
      called = () => resolve(performance.now());
    });
    const sentAt = performance.now();
    await send([bodies[0]]);
    const arrivedAt = await arrived;
    if (number) latencies.push(arrivedAt - sentAt);
  }
  await stop();
  writeSync(1, `@latencies ${JSON.stringify(latencies)}\n`);
}
