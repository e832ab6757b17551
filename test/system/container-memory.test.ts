/** A server in a cgroup with little memory, as in a container. */

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { createCgroup } from "../../src/local/tree/cgroups.ts";
import { PROCWIRE, ServeChild } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const LIMIT_BYTES = 400 * 1024 * 1024;
const PROCESSES = 600;

/** Creates a cgroup with a memory limit; null if this host allows none. */
function memoryCgroup() {
  try {
    const path = dirname(createCgroup("memory", LIMIT_BYTES).procsPath);
    rmdirSync(path);
    const ours = join(dirname(path), `procwire-test-${process.pid}`);
    mkdirSync(ours);
    const limit = ["memory.max", "memory.limit_in_bytes"].map((name) => join(ours, name)).find(existsSync);
    if (limit !== undefined) writeFileSync(limit, String(LIMIT_BYTES));
    return limit === undefined ? null : ours;
  } catch {
    return null;
  }
}

const cgroup = memoryCgroup();

test("600 processes with 4 MB of unread output each stay alive in a cgroup of 400 MB", {
  skip: skipUnless(cgroup !== null, "no cgroup with a memory limit can be made here"),
  timeout: 600_000,
}, async () => {
  assert.ok(cgroup !== null);
  const joinCgroup = `echo $$ > ${join(cgroup, "cgroup.procs")}; exec "$0" "$@"`;
  try {
    await using server = new ServeChild(["--listen", "ws://127.0.0.1:0", "--metrics"], {
      command: ["/bin/sh", "-c", joinCgroup, PROCWIRE, "serve"],
    });
    await server.listening();
    const client = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const script = "head -c 4194304 /dev/zero; exec sleep 1000";
    for (let index = 0; index < PROCESSES; index++)
      await client.start({
        processId: `p${index}`,
        argv: ["/bin/sh", "-c", script],
        cwd: "/",
        env: { PATH: "/usr/bin:/bin" },
        tty: false,
      });
    const url = server.url.replace("ws:", "http:");
    const health = async (): Promise<{ degraded: string[] }> =>
      (await fetch(`${url}/healthz`)).json() as Promise<{ degraded: string[] }>;
    const metrics = async () => (await fetch(`${url}/metrics`)).text();
    await until(
      "the server to lower its budget",
      async () => (await health()).degraded.some((text) => text.startsWith("memory: the container is almost full")),
      server.exited,
    );
    const budget = (name: string, text: string) =>
      Number(new RegExp(`^procwire_memory_budget_${name}_bytes (\\S+)$`, "m").exec(text)?.[1]);
    const page = await metrics();
    assert.ok(budget("limit", page) < budget("max", page), page);
    const processes = await client.list();
    assert.equal(processes.filter(({ running }) => running).length, PROCESSES);
    assert.match(server.stderr, /the container is almost out of memory; the memory budget is lowered/);
    await client.close();
  } finally {
    await until("the end of all processes", () => readFileSync(join(cgroup, "cgroup.procs"), "utf8") === "");
    rmdirSync(cgroup);
  }
});
