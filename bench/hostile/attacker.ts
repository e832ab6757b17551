/** Thread that runs an attack. Its connections close when the main thread terminates it. */
import { parentPort, workerData } from "node:worker_threads";
import { attacks } from "./attacks.ts";

const { name, url, scratch } = workerData as { name: string; url: string; scratch: string };
const attack = attacks.find((candidate) => candidate.name === name);
if (!attack) throw new Error(`unknown attack ${name}`);
await attack.run(url, scratch);
parentPort?.postMessage("done");
// Keeps the connections open until the main thread has measured the server.
setInterval(() => undefined, 1_000);
