import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { describe, test } from "node:test";
import { isAlive } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { NO_ADDON } from "./started.ts";

const fixture = join(import.meta.dirname, "..", "fixtures", "native", "left-alone.ts");

describe("a killed host process without a watchdog", { skip: NO_ADDON }, () => {
  // Nothing else kills them: the host process has no watchdog, no sentinel and no cgroup.
  test("kills its leaders through their parent-death signal", async () => {
    const host = spawn(process.execPath, [fixture], { stdio: ["ignore", "pipe", "inherit"] });
    host.stdout.setEncoding("utf8");
    const [line] = await once(host.stdout, "data");
    const pids: number[] = JSON.parse(line);
    assert.deepEqual(pids.filter(isAlive), pids);
    host.kill("SIGKILL");
    await until(`none is left (${pids.filter(isAlive)})`, () => !pids.some(isAlive));
  });
});
