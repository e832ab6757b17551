/** A short run of every scenario against procwire only. It fails on a wrong result, never on a slow one. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { buildClient, runClient } from "./native-client.ts";
import { ourKind, ServerUnderTest } from "./server-under-test.ts";

const RUNS = [
  "spawn n=5",
  "spawn n=5 tty=1",
  "spawn-rate n=40 connections=1",
  "spawn-rate n=40 connections=4",
  "output kind=head bytes=16777216",
  "output kind=yes bytes=16777216",
  "output kind=dd bytes=16777216",
  "output kind=pty bytes=1048576",
  "output kind=lines bytes=5000",
  "echo n=50",
  "echo n=50 tty=1",
  "echo n=10 quickack=0",
  "upload bytes=8388608",
  "idle n=20",
  "echo-many connections=10 ms=300",
  "flood what=spawn n=5",
  "flood what=echo n=20",
  "slow-reader ms=10000",
  "echo-load connections=10 echoes=400 rate=2000 ms=300",
  "paced-reader bytes=16777216",
  "retained n=3",
];

const client = buildClient();
const kind = ourKind();
await runClient(client, ["startup", ...kind.command], undefined, kind.env);
for (const run of RUNS) {
  const [scenario = "", ...options] = run.split(" ");
  const server = await ServerUnderTest.start(kind);
  try {
    const measured = await runClient(client, [scenario, server.url, ...options]);
    console.log(run.padEnd(40), JSON.stringify(measured));
  } finally {
    await server.stop();
  }
}

// It fails if an operation does no work.
execFileSync(process.execPath, [join(import.meta.dirname, "files.ts"), "--small", "--no-peer", "--rounds", "1"], {
  stdio: "inherit",
});
