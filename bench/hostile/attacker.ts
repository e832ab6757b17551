/** The thread that attacks. On request it exits and closes its connections. */
import { parentPort, workerData } from "node:worker_threads";
import { attacks } from "./attacks.ts";

const { name, url, scratch } = workerData as { name: string; url: string; scratch: string };
const attack = attacks.find((one) => one.name === name);
if (!attack) throw new Error(`no attack is called ${name}`);
await attack.run(url, scratch);
parentPort?.postMessage("done");
// Connections stay open until the measuring thread has looked at the server once more.
setInterval(() => undefined, 1_000);
