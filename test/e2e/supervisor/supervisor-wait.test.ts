import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startCli } from "../../support/servers/run-cli.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

test("`procwire wait` returns the exit code of a persistent process although its server is killed, and fails for others", {
  timeout: 600_000,
  skip: NO_SUPERVISOR,
}, async () => {
  using directory = scratchDirectory();
  const audit = join(directory.path, "audit");
  await using server = await SupervisedServer.start("--audit", audit);
  await using client = await server.connect();
  const kept = await client.start(persistentParams("kept", "read line; exit 7", { name: "kept" }));
  await client.start(persistentParams("lost", "read line", { name: "lost", lifetime: "server" }));
  const wait = (name: string) => startCli(["wait", "--connect", server.url, name], { cwd: directory.path });
  const [waiting, failing] = [wait("kept"), wait("lost")];
  const attachCount = () => readFileSync(audit, "utf8").split('"event":"process/attach"').length - 1;
  await until("both to be attached", () => attachCount() === 2);
  await server.killServer([kept.pid]);
  const failed = await failing.ended;
  assert.deepEqual([failed.code, /^procwire wait: unknown handle \w+; .*generation/.test(failed.stderr)], [125, true]);
  await kept.write(Buffer.from("end\n"));
  const ended = await waiting.ended;
  assert.deepEqual([ended.code, ended.stdout, ended.stderr], [7, "", ""]);
  // The second server continues the log of the first one.
  await until("the end to be logged", () =>
    /"event":"process\/ended","processId":"kept".*"exitCode":7/.test(readFileSync(audit, "utf8")),
  );
  const verified = await startCli(["audit", "verify", audit], { cwd: directory.path }).ended;
  assert.deepEqual([verified.code, verified.stderr], [0, ""]);
});
