import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { describe, test } from "node:test";
import { isAlive } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { NO_ADDON } from "./started.ts";

const fixture = join(import.meta.dirname, "..", "fixtures", "native", "left-alone.ts");

describe("a program without a watchdog that is killed", { skip: NO_ADDON }, () => {
  // Nothing else ends them: there is no watchdog, no guard and no cgroup around this program.
  test("ends the leaders it started, by their parent-death signal", async () => {
    const program = spawn(process.execPath, [fixture], { stdio: ["ignore", "pipe", "inherit"] });
    program.stdout.setEncoding("utf8");
    const [line] = await once(program.stdout, "data");
    const pids: number[] = JSON.parse(line);
    assert.deepEqual(pids.filter(isAlive), pids);
    program.kill("SIGKILL");
    await until(`none is left (${pids.filter(isAlive)})`, () => !pids.some(isAlive));
  });
});
