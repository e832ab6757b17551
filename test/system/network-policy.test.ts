/** Network policies of users in real sandboxes: `run`, MCP and the recipes of docs/network.md. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { homedir } from "node:os";
import { join, normalize } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { localSandboxes } from "../../src/host/host-sandboxes.ts";
import { writeNpmRegistry } from "../support/network/tiny-packages.ts";
import { ENTRY, startCli } from "../support/servers/run-cli.ts";
import { scratchDirectory, serve } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { TmuxScreen } from "../support/system/tmux-screen.ts";
import { until } from "../support/system/until.ts";
import { startMcp } from "../tools/mcp/start-mcp.ts";

const skip = skipUnless(localSandboxes().includes("managed-network"), "the sandbox cannot enforce network rules here");
const TIMEOUT = { timeout: 600_000, skip };
const CAN_ASK = { capabilities: { elicitation: { form: {} } } };

const run = (cwd: string, words: readonly string[], script: string, mode = "read-only") =>
  startCli(
    ["run", "--sandbox", mode, ...words.flatMap((word) => ["--network", word]), "--", "/bin/bash", "-c", script],
    { cwd },
  ).ended;

/** Serves the files below a directory over HTTP on loopback. */
async function serveFiles(t: TestContext, root: string): Promise<{ port: number; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://x").pathname;
    requests.push(path);
    try {
      response.end(readFileSync(join(root, normalize(path))));
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const address = server.address();
  return { port: typeof address === "object" && address ? address.port : 0, requests };
}

describe("run --network", TIMEOUT, () => {
  test("reaches an allowed host through the proxy, and no other way out", async (t) => {
    using scratch = scratchDirectory();
    const host = await serveFiles(t, scratch.path);
    const url = `http://127.0.0.1:${host.port}/`;
    const curl = "curl -sS -m 60 -o /dev/null -w '%{http_code}\n'";
    const script = `${curl} ${url}; ${curl} http://other.test/; ${curl} --noproxy '*' ${url} 2>/dev/null; exit 3`;
    const { code, stdout, stderr } = await run(scratch.path, ["allow:127.0.0.1"], script);
    assert.deepEqual([code, stdout], [3, "404\n403\n000\n"]);
    assert.deepEqual(stderr.split("\n"), [
      "procwire run: network: blocked other.test:80 (not allowed)",
      'procwire run:   Network access to "other.test" was blocked: domain is not on the allowlist for the current sandbox mode.',
      "",
    ]);
    assert.deepEqual(host.requests, ["/"]);
  });

  test("blocks other ports, and denied hosts although they are allowed", async (t) => {
    using scratch = scratchDirectory();
    const host = await serveFiles(t, scratch.path);
    const curl = "curl -sS -m 60 -o /dev/null -w '%{http_code}\n'";
    const script = `${curl} http://127.0.0.1:${host.port}/`;
    const port = await run(scratch.path, ["allow:127.0.0.1", "ports:443"], script);
    assert.equal(port.stdout, "403\n");
    assert.match(port.stderr, new RegExp(`network: blocked 127\\.0\\.0\\.1:${host.port} \\(`));
    const denied = await run(scratch.path, ["allow:127.0.0.1", "deny:127.0.0.1"], script);
    assert.equal(denied.stdout, "403\n");
    assert.match(denied.stderr, /network: blocked 127\.0\.0\.1:\d+ \(denied\)/);
    assert.deepEqual(host.requests, []);
  });
});

describe("run --network ask", TIMEOUT, () => {
  for (const kind of ["pipes", "a terminal"])
    test(`asks on the terminal of a command with ${kind}, and then returns the terminal to it`, async () => {
      using scratch = scratchDirectory();
      const env = { PATH: process.env.PATH ?? "", HOME: scratch.path };
      using screen = new TmuxScreen(`procwire-ask-${process.pid}-${kind.length}`, scratch.path, env);
      const tty = kind === "pipes" ? "" : "--tty ";
      const script = `curl -s -o /dev/null -w 'status %{http_code}\\n' http://other.test/; read line; echo got $line`;
      screen.begin(
        `${process.execPath} ${ENTRY} run ${tty}--sandbox read-only --network ask -- bash -c '${script.replaceAll("'", '"')}'`,
      );
      await screen.see(/approve network access to "other\.test"\?/);
      await screen.see(/n = no:$/m);
      screen.press("n");
      screen.press("Enter");
      await screen.see(/^status 403$/m);
      screen.begin("typed");
      await screen.see(/^got typed$/m);
      await screen.see(/^procwire run: network: blocked other\.test:80 \(rejected by user\)$/m);
    });
});

describe("run --connect --network ask", TIMEOUT, () => {
  test("asks on the terminal and in the console of the server; the first answer closes the other question", async () => {
    using scratch = scratchDirectory();
    await using server = await serve("--listen", "ws://127.0.0.1:0", "--web");
    await using user = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const env = { PATH: process.env.PATH ?? "", HOME: scratch.path };
    using screen = new TmuxScreen(`procwire-console-ask-${process.pid}`, scratch.path, env);
    const curl = (host: string) => `curl -s -o /dev/null -w "${host} %{http_code}\\n" http://${host}.test/`;
    const script = `${curl("one")}; ${curl("two")}`;
    screen.begin(
      `${process.execPath} ${ENTRY} run --connect ${server.url} --sandbox read-only --network ask -- bash -c '${script}'`,
    );
    const question = async (host: string) => {
      const open = async () => (await user.call("network/questions", {})).questions.find((one) => one.host === host);
      await until(`the question about ${host}`, async () => (await open()) !== undefined);
      return (await open()) ?? assert.fail();
    };
    const first = await question("one.test");
    assert.deepEqual([first.port, first.protocol, first.canRemember], [80, "http", false]);
    await screen.see(/approve network access to "one\.test"\?/);
    assert.ok((await user.call("network/answer", { questionId: first.questionId, answer: "deny" })).accepted);
    await screen.see(/The question was answered elsewhere/);
    await screen.see(/^one 403$/m);
    await question("two.test");
    await screen.see(/approve network access to "two\.test"\?/);
    screen.press("n");
    screen.press("Enter");
    await screen.see(/^two 403$/m);
    assert.deepEqual(await user.call("network/questions", {}), { questions: [] });
    await screen.see(/network: blocked one\.test:80 \(rejected by user\)/);
  });
});

describe("mcp --connect --network ask", TIMEOUT, () => {
  test("takes the answer of the console if the MCP client cannot ask", async () => {
    using scratch = scratchDirectory();
    await using server = await serve("--listen", "ws://127.0.0.1:0", "--web");
    await using user = await NodeExecServerClient.connectWebSocket({ url: server.url });
    await using mcp = await startMcp(["--connect", server.url, "--sandbox", "read-only", "--network", "ask"]);
    const cmd = "curl -s -o /dev/null -w '%{http_code}' http://other.test/";
    const called = mcp.call("exec_command", { cmd, login: false, workdir: scratch.path, yield_time_ms: 30_000 });
    const open = async () => (await user.call("network/questions", {})).questions;
    await until("the question", async () => (await open()).length === 1);
    const [question] = await open();
    assert.match(question?.argv.at(-1) ?? "", /curl -s/);
    await user.call("network/answer", { questionId: question?.questionId ?? "", answer: "deny" });
    assert.match((await called).text, /network: blocked other\.test:80 \(rejected by user\)/);
  });
});

describe("mcp --network ask", TIMEOUT, () => {
  test("asks the user of the client while the command waits, and stores `always` in the rules file", async () => {
    using scratch = scratchDirectory();
    const rules = join(scratch.path, "rules.toml");
    writeFileSync(rules, 'default = "allow" # commands\n');
    const answers = ["refuse", "always allow this host"];
    const messages: string[] = [];
    await using mcp = await startMcp(
      ["--sandbox", "read-only", "--network", "ask", "--rules", rules],
      CAN_ASK,
      (form) => {
        messages.push(form.message);
        return { action: "accept", content: { decision: answers.shift() ?? "refuse" } };
      },
    );
    // The names have no address, so that the proxy blocks them also after an approval.
    const cmd = "curl -sS -m 60 http://first.test/; curl -sS -m 60 -o /dev/null http://second.test/";
    const { text } = await mcp.call("exec_command", { cmd, login: false, yield_time_ms: 30_000 });
    assert.equal(messages.length, 2, messages.join("\n"));
    assert.match(
      messages[0] ?? "",
      /^Do you want to approve network access to "first\.test"\?\n {2}first\.test:80 by HTTP; /,
    );
    assert.match(text, /network: blocked first\.test:80 \(rejected by user\)\n/);
    assert.match(
      readFileSync(rules, "utf8"),
      /^default = "allow" # commands\n\n\[network\]\nallow = \["second\.test"\]\n$/,
    );
  });

  test("allows a host until the end if the rules file cannot grow, and leaves the file unchanged", async () => {
    using scratch = scratchDirectory();
    const rules = join(scratch.path, "rules.toml");
    const before = `default = "allow" # ${"commands ".repeat(100)}\n`;
    writeFileSync(rules, before);
    const messages: string[] = [];
    await using mcp = await startMcp(
      ["--sandbox", "read-only", "--network", "ask", "--rules", rules],
      CAN_ASK,
      (form) => {
        messages.push(form.message);
        // A write beyond this size fails, as on a full disk.
        execFileSync("prlimit", ["--pid", `${mcp.pid()}`, "--fsize=100"]);
        return { action: "accept", content: { decision: "always allow this host" } };
      },
    );
    const cmd = "curl -sS -m 60 http://first.test/; curl -sS -m 60 http://first.test/";
    const { text } = await mcp.call("exec_command", { cmd, login: false, yield_time_ms: 30_000 });
    // The name has no address, so that the proxy blocks it also after an approval.
    assert.match(text, /network: blocked first\.test:80 \(local or private address\)/);
    assert.equal(messages.length, 1, messages.join("\n"));
    assert.equal(readFileSync(rules, "utf8"), before);
    assert.deepEqual(readdirSync(scratch.path), ["rules.toml"]);
  });

  test("narrows the policy by the argument `network`", async (t) => {
    using scratch = scratchDirectory();
    const host = await serveFiles(t, scratch.path);
    await using mcp = await startMcp(["--sandbox", "read-only", "--network", "allow:127.0.0.1"], {});
    const cmd = `curl -s -m 60 -o /dev/null -w '%{http_code}' http://127.0.0.1:${host.port}/`;
    const reach = async (network?: string[]) =>
      (await mcp.call("exec_command", { cmd, login: false, yield_time_ms: 30_000, network })).text.split(
        "Output:\n",
      )[1];
    assert.equal(await reach(), "404");
    assert.equal(await reach(["allow:other.test"]), "403");
    assert.equal(await reach(["off"]), "000");
    assert.equal(host.requests.length, 1);
  });
});

describe("the recipes of docs/network.md", TIMEOUT, () => {
  test("git clones over HTTP from an allowed host", async (t) => {
    const root = mkdtempSync(join(homedir(), "procwire-recipe-"));
    t.after(() => rmSync(root, { recursive: true }));
    const git = (...args: string[]) => execFileSync("git", ["-c", "user.name=x", "-c", "user.email=x@x", ...args]);
    git("init", "-q", join(root, "work"));
    writeFileSync(join(root, "work", "file"), "content\n");
    git("-C", join(root, "work"), "add", ".");
    git("-C", join(root, "work"), "commit", "-qm", "first");
    git("clone", "-q", "--bare", join(root, "work"), join(root, "repository.git"));
    git("-C", join(root, "repository.git"), "update-server-info");
    const served = await serveFiles(t, root);
    using scratch = scratchDirectory();
    const script = `git clone -q http://127.0.0.1:${served.port}/repository.git copy 2>&1 && cat copy/file`;
    const allowed = await run(scratch.path, ["allow:127.0.0.1"], script, "workspace-write");
    assert.deepEqual([allowed.code, allowed.stdout], [0, "content\n"], allowed.stderr);
    const count = served.requests.length;
    const blocked = await run(scratch.path, ["allow:git.example"], script.replace("copy", "other"), "workspace-write");
    assert.notEqual(blocked.code, 0);
    assert.match(blocked.stderr, /network: blocked 127\.0\.0\.1:\d+ \(local or private address\)/);
    assert.equal(served.requests.length, count);
  });

  test("npm installs a package from an allowed registry", async (t) => {
    const root = mkdtempSync(join(homedir(), "procwire-recipe-"));
    t.after(() => rmSync(root, { recursive: true }));
    const registry = await serveFiles(t, root);
    writeNpmRegistry(root, `http://127.0.0.1:${registry.port}`);
    using scratch = scratchDirectory();
    const script = `export npm_config_cache=$PWD/cache npm_config_update_notifier=false
      npm install --no-audit --no-fund --fetch-retries 0 --registry http://127.0.0.1:${registry.port} tiny >log 2>&1 &&
      node -p 'require("tiny")' || { cat log; exit 1; }`;
    const blocked = await run(scratch.path, ["allow:registry.example"], script, "workspace-write");
    assert.equal(blocked.code, 1, blocked.stdout);
    assert.deepEqual(registry.requests, []);
    const allowed = await run(scratch.path, ["allow:127.0.0.1"], script, "workspace-write");
    assert.deepEqual([allowed.code, allowed.stdout], [0, "installed\n"], allowed.stderr);
  });
});
