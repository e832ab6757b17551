/** An unsandboxed command of the server's user cannot read the secrets of the programs that run it. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { answer, functionCall, says, startMockResponses, toolOutputs } from "../support/models/mock-responses.ts";
import { PROCWIRE } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { commandAs, USERS } from "../support/system/users.ts";
import { testEscape } from "./inside.ts";

const SECRET = "hunter2-of-the-server";
const SECRETS = {
  OPENAI_API_KEY: SECRET,
  DATABASE_URL: `postgres://user:${SECRET}@host/db`,
  npm_config__authtoken: SECRET,
};

/** Reads the environment of all ancestors, up to the first one without the file. Prints `PID NAME: ENVIRONMENT`. */
const READ_ANCESTORS = `
pid=$PPID
while [ "$pid" -gt 1 ]; do
  name=$(cat /proc/$pid/comm)
  echo "$name: $(cat /proc/$pid/environ 2>&1 | tr '\\0' ' ')"
  for file in mem maps; do (exec 3</proc/$pid/$file) 2>/dev/null && echo "$name can be read: $file"; done
  [ "$name" = watchdog ] && watchdogs="x$watchdogs"
  [ "$watchdogs" = xx ] && break
  pid=$(sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f2)
done`;

for (const supervised of [false, true])
  testEscape(
    `an unsandboxed command reads no secret from the ${supervised ? "supervised " : ""}server, its watchdogs${supervised ? ", its supervisor" : ""} and its sentinel`,
    async (fixture) => {
      const { output } = await fixture.script(
        { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" },
        READ_ANCESTORS,
      );
      const names = output.match(/^\S+(?=: )/gm);
      const server = names?.[0] ?? "";
      assert.deepEqual(names, [server, ...(supervised ? ["supervisor"] : []), "watchdog", "watchdog"], output);
      assert.doesNotMatch(output, new RegExp(SECRET));
      // Root may read the memory of every process.
      if (fixture.user.uid !== 0) {
        assert.doesNotMatch(output, /can be read/);
        assert.equal(output.match(/Permission denied/g)?.length, names?.length, output);
      }
      const sentinels = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && commOf(pid) === "pw-sentinel");
      assert.notEqual(sentinels.length, 0);
      for (const pid of sentinels) assert.doesNotMatch(environmentOf(pid), new RegExp(SECRET));
      // The server still has the variables: it passes them to commands that ask for them.
      const envPolicy = { inherit: "all", ignoreDefaultExcludes: true, exclude: [], set: {}, includeOnly: [] };
      const asked = await fixture.run(
        { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" },
        ["/bin/sh", "-c", 'echo "$OPENAI_API_KEY"; cat /proc/self/environ >/dev/null && echo readable'],
        { envPolicy },
      );
      assert.equal(asked.output, `${SECRET}\nreadable\n`);
    },
    { env: SECRETS, serveArgs: () => (supervised ? ["--supervised"] : []) },
  );

function commOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}

function environmentOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return "";
  }
}

for (const user of USERS)
  test(`an unsandboxed command reads no secret from mcp, as ${user.name}`, async () => {
    const [file = "", ...args] = [...commandAs(user), PROCWIRE, "mcp"];
    const child = spawn(file, args, {
      cwd: "/",
      env: { PATH: process.env.PATH, HOME: "/", ...SECRETS },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const ended = once(child, "close");
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
    const send = (message: object) => child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
    try {
      const clientInfo = { name: "test", version: "1" };
      send({ id: 1, method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo } });
      await until("the response", () => output.includes('"id":1'), ended);
      send({ method: "notifications/initialized" });
      const cmd = "cat /proc/$PPID/comm; cat /proc/$PPID/environ | tr '\\0' ' '; echo; echo end-of-environment";
      send({
        id: 2,
        method: "tools/call",
        params: { name: "exec_command", arguments: { cmd, yield_time_ms: 20_000 } },
      });
      await until("the result", () => output.includes('"id":2'), ended);
    } finally {
      child.stdin.end();
      await ended;
    }
    assert.match(output, /end-of-environment/);
    assert.doesNotMatch(output, new RegExp(SECRET));
  });

for (const user of USERS)
  test(`an unsandboxed command reads no secret from exec, as ${user.name}`, async () => {
    const cmd = "cat /proc/$PPID/environ | tr '\\0' ' '; echo; echo end-of-environment";
    const model = await startMockResponses((request) => {
      const outputs = toolOutputs(request.body);
      return outputs.length === 0 ? answer(functionCall("c", "exec_command", { cmd })) : says(outputs.join("\n"));
    });
    await using _ = { [Symbol.asyncDispose]: () => model.close() };
    const args = ["exec", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox", "go"];
    const [file = "", ...words] = [...commandAs(user), PROCWIRE, ...args];
    const env = { PATH: process.env.PATH, HOME: "/", ...SECRETS, OPENAI_BASE_URL: model.url };
    const child = spawn(file, words, { cwd: "/", env, stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
    await once(child, "close");
    assert.match(output, /end-of-environment/);
    assert.doesNotMatch(output, new RegExp(SECRET));
  });
