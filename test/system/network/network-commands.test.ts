/** `exec`, `fanout` and `run --rules` with a network policy, as users start them. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, type TestContext, test } from "node:test";
import { localSandboxes } from "../../../src/host/host-sandboxes.ts";
import {
  answer,
  functionCall,
  inputTexts,
  type MockHandler,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { PROCWIRE, scratchDirectory } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

const skip = skipUnless(localSandboxes().includes("managed-network"), "the sandbox cannot enforce network rules here");
const CURL = "curl -s -m 60 -o /dev/null -w '%{http_code} '";

/** Runs the shipped program. */
async function procwire(cwd: string, args: readonly string[], env: Record<string, string> = {}) {
  const child = spawn(PROCWIRE, args, {
    ...{ cwd, env: { PATH: process.env.PATH ?? "", HOME: cwd, OPENAI_API_KEY: "x", ...env } },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  return { code, stdout, stderr };
}

/** An HTTP server on loopback. */
async function startHost(t: TestContext): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(request.url ?? "");
    response.end("served");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

async function startModel(t: TestContext, handler: MockHandler): Promise<Record<string, string>> {
  const mock = await startMockResponses(handler);
  t.after(() => mock.close());
  return { OPENAI_BASE_URL: mock.url };
}

describe("network policies of commands", { skip, timeout: 600_000 }, () => {
  test("exec --network applies to the commands of the agent, and reports blocked targets", async (t) => {
    using scratch = scratchDirectory();
    const host = await startHost(t);
    const cmd = `${CURL} ${host.url}/a; ${CURL} http://other.test/; ${CURL} --noproxy '*' ${host.url}/b 2>/dev/null`;
    const env = await startModel(t, ({ body }) => {
      const outputs = toolOutputs(body);
      return outputs.length === 0
        ? answer(functionCall("c", "exec_command", { cmd, login: false, yield_time_ms: 30_000 }))
        : says(outputs.join("\n"));
    });
    const { code, stdout, stderr } = await procwire(
      scratch.path,
      ["exec", "--json", "-s", "read-only", "--network", "allow:127.0.0.1", "go"],
      env,
    );
    assert.equal(code, 0, stderr);
    assert.match(stdout, /Output:\\n200 403 000 /);
    assert.match(stdout, /network: blocked other\.test:80 \(not allowed\)/);
    assert.match(stdout, /"type":"network\.blocked"/);
    assert.deepEqual(host.requests, ["/a"]);
  });

  test("fanout --network-column narrows the policy of --network for each row", async (t) => {
    using scratch = scratchDirectory();
    const host = await startHost(t);
    writeFileSync(join(scratch.path, "rows.csv"), "name,net\nplain,\nnone,off\nother,allow:other.test\nwide,allow:*\n");
    const outputs: Record<string, string> = {};
    const env = await startModel(t, (request) => {
      const [, name = ""] = /row (\w+)/.exec(inputTexts(request.body).join("\n")) ?? [];
      const [output] = toolOutputs(request.body);
      const cmd = `${CURL} ${host.url}/${name}; ${CURL} http://denied.test/`;
      if (output === undefined)
        return answer(functionCall("c", "exec_command", { cmd, login: false, yield_time_ms: 30_000 }));
      outputs[name] = /Output:\n(\d+ \d+)/.exec(output)?.[1] ?? output;
      return report(request, { done: true });
    });
    const options = ["--tools", "exec", "--sandbox", "read-only", "--network-column", "net", "--output", "out.csv"];
    const words = ["--network", "allow:127.0.0.1,*.test", "--network", "deny:denied.test"];
    const { code, stderr } = await procwire(
      scratch.path,
      ["fanout", "rows.csv", "--instruction", "row {name}", ...options, ...words],
      env,
    );
    assert.equal(code, 0, stderr);
    assert.deepEqual(outputs, { plain: "200 403", none: "000 000", other: "403 403", wide: "403 403" });
    assert.deepEqual(host.requests, ["/plain"]);
  });

  test("run --rules applies the section [network], to which --network adds", async (t) => {
    using scratch = scratchDirectory();
    const host = await startHost(t);
    const rules = join(scratch.path, "rules.toml");
    writeFileSync(rules, '[network]\nallow = ["127.0.0.1"]\nask = ["asked.test"]\n');
    const script = `${CURL} ${host.url}/a; ${CURL} http://asked.test/; ${CURL} http://other.test/`;
    const run = (...more: string[]) =>
      procwire(scratch.path, ["run", "--sandbox", "read-only", "--rules", rules, ...more, "--", "bash", "-c", script]);
    const { code, stdout, stderr } = await run();
    assert.deepEqual([code, stdout], [0, "200 403 403 "], stderr);
    assert.match(stderr, /network: blocked asked\.test:80/);
    assert.equal((await run("--network", "deny:127.0.0.1")).stdout, "403 403 403 ");
    assert.equal((await run("--network", "off")).stdout, "000 000 000 ");
    assert.deepEqual(host.requests, ["/a"]);
  });
});
