import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { skipUnless } from "../support/system/skip-unless.ts";
import { InstalledProject } from "./installed-project.ts";

const packages = resolve("prebuild/runtimes/node_modules");
const RUNTIMES = [
  { name: "Bun", program: join(packages, "@oven/bun-linux-x64/bin/bun"), byUrl: [], local: [] },
  {
    name: "Deno",
    program: join(packages, "@deno/linux-x64-glibc/deno"),
    byUrl: ["run", "--no-prompt", "--allow-net"],
    local: ["run", "--allow-all"],
  },
];

/** Uses every part of the client with the server at the URL. */
const BY_URL = `
import { Environment } from "procwire";
const url = process.argv[2];
const states = [];
const environment = await Environment.create(url, { onConnectionState: ({ type }) => states.push(type) });
const { stdout } = await environment.run(["sh", "-c", "echo out; cat"], { input: "in\\n" });
const terminal = await environment.spawn("cat", { tty: true });
await terminal.write("hello\\n");
await terminal.waitFor("hello");
await terminal.signal("SIGTERM");
const { signal } = await terminal.wait();
const bytes = new Uint8Array(10_000_000).fill(7);
await environment.files.writeFile("/tmp/procwire-runtime-" + process.pid, bytes);
const copied = await environment.files.readFile("/tmp/procwire-runtime-" + process.pid);
await environment.files.remove("/tmp/procwire-runtime-" + process.pid);
const { status } = await environment.http.request({ url: url.replace("ws:", "http:") + "/healthz" });
await environment.close();
const results = [stdout, signal, copied.every((byte) => byte === 7), copied.length, status, states];
console.log(JSON.stringify(results));
`;

/** Uses local processes: pipes work, and everything that needs the native addon rejects. */
const LOCAL = `
import { Environment } from "procwire";
const environment = await Environment.create(null);
const results = {};
const untilReady = async (script) => {
  const child = await environment.spawn(["sh", "-c", script]);
  await child.waitFor("ready");
  return child;
};
results.output = (await environment.run(["sh", "-c", "echo out; cat"], { input: "in\\n" })).stdout;
const failed = await environment.run(["sh", "-c", "echo broken >&2; exit 3"]).catch((error) => error);
results.failed = [failed.code, failed.exitCode, failed.stderr];
const input = new Uint8Array(4_000_000).fill(7);
const copied = await environment.run("cat", { input, encoding: "buffer", maxBytes: input.length });
results.copied = copied.stdout.length === input.length && copied.stdout.every((byte) => byte === 7);
const inner = "trap 'echo child; exit' USR1; echo ready; while :; do sleep 0.02; done";
const group = await untilReady("trap 'echo leader; exit 4' USR1; sh -c \\"" + inner + "\\" & wait; wait");
await group.signal("SIGUSR1");
const { exitCode } = await group.wait();
results.group = [exitCode];
for await (const line of group.lines()) if (line !== "ready") results.group.push(line);
results.group.sort();
const tree = await untilReady("sleep 1000 & echo $!; echo ready; wait");
const { value: pid } = await tree.lines().next();
await tree.terminate();
results.terminated = (await tree.wait()).signal;
const isAlive = () => {
  try {
    return process.kill(Number(pid), 0);
  } catch {
    return false;
  }
};
while (isAlive()) await new Promise((resolve) => setTimeout(resolve, 10));
const polite = await untilReady("trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done");
await polite.terminate({ type: "graceful", timeoutMs: 60_000 });
results.polite = (await polite.wait()).exitCode;
results.timeout = (await environment.run(["sleep", "1000"], { timeoutMs: 10 }).catch((error) => error)).code;
results.missing = (await environment.run("no-such-program").catch((error) => error)).code;
const start = (id, options) =>
  environment.getExecBackend().start({ processId: id, argv: ["true"], cwd: "/", env: {}, tty: false, ...options });
const permissions = { type: "managed", file_system: { type: "restricted", entries: [] }, network: "restricted" };
const rejected = {
  terminal: start("terminal", { tty: true }),
  limits: start("limits", { limits: { openFiles: 50 } }),
  sandbox: start("sandbox", { sandbox: { permissions, windowsSandboxLevel: "disabled" } }),
};
for (const [name, starting] of Object.entries(rejected))
  results[name] = await starting.then(() => "started", (error) => error.message);
await environment.close();
console.log(JSON.stringify(results));
`;

const skip = skipUnless(process.arch === "x64", "the runtimes are installed for x64 only");

describe("the installed library", { skip, timeout: 600_000 }, () => {
  let project: InstalledProject;
  let url: string;
  before(async () => {
    project = await InstalledProject.install({ compiler: true });
    writeFileSync(join(project.path, "by-url.js"), BY_URL);
    writeFileSync(join(project.path, "local.js"), LOCAL);
    url = await project.serve();
  });
  after(() => project[Symbol.asyncDispose]());

  for (const { name, program, byUrl, local } of RUNTIMES) {
    async function run(...args: string[]): Promise<unknown> {
      const { code, stdout, stderr } = await project.run(program, ...args);
      assert.equal(code, 0, stderr);
      return JSON.parse(stdout);
    }

    test(`connects to a server by URL under ${name}`, async () => {
      const states = ["connected", "disconnected"];
      assert.deepEqual(await run(...byUrl, "by-url.js", url), ["out\nin\n", "SIGTERM", true, 10_000_000, 200, states]);
    });

    test(`runs local processes with pipes under ${name}, and rejects features of the native addon`, async () => {
      const { terminal, limits, sandbox, ...pipes } = (await run(...local, "local.js")) as Record<string, unknown>;
      assert.deepEqual(pipes, {
        output: "out\nin\n",
        failed: ["EXIT", 3, "broken\n"],
        copied: true,
        group: [4, "child", "leader"],
        terminated: "SIGKILL",
        polite: 5,
        timeout: "TIMEOUT",
        missing: "ENOENT",
      });
      const remedy = `not supported by ${name} [\\d.]+, which cannot load the native addon; connect to a server by URL, or use Node 24$`;
      assert.match(String(terminal), new RegExp(`^cannot allocate a terminal: ${remedy}`));
      assert.match(String(limits), new RegExp(`^limit openFiles cannot be enforced on this executor: ${remedy}`));
      assert.match(String(sandbox), new RegExp(`^sandbox intent cannot be enforced on this executor: ${remedy}`));
    });
  }
});
