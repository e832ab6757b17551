/** `procwire console`: login URLs for a running server, directly and through a forwarded port. */
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { runCli as runCliIn, startCli } from "../../support/servers/run-cli.ts";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { UserServerDirectory } from "../../support/servers/user-server.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
const runCli = (args: readonly string[], env: Record<string, string> = {}) =>
  runCliIn(args, { cwd: scratch.path, env });

/** Opens a login URL as the console's page does. Resolves to the principal, or to the status of the failed sign-in. */
async function openLoginUrl(text: string): Promise<unknown> {
  const { origin, hash } = new URL(text.trim());
  const page = await fetch(origin);
  assert.match(await page.text(), /<title>procwire<\/title>/);
  const signedIn = await fetch(`${origin}/api/sign-in`, {
    method: "POST",
    body: JSON.stringify({ token: hash.replace("#token=", "") }),
  });
  if (!signedIn.ok) return signedIn.status;
  const { secret } = (await signedIn.json()) as { secret: string };
  return (await fetch(`${origin}/api/me`, { headers: { authorization: `Bearer ${secret}` } })).json();
}

/** Starts `procwire console` and resolves with its URL once it forwards. */
async function forwardedConsole(...args: string[]) {
  const run = startCli(["console", ...args], { cwd: scratch.path });
  await until("a URL", () => run.stdout.includes("#token="));
  return { run, url: run.stdout.trim() };
}

describe("procwire console", () => {
  test("prints a new login URL each time, which works once", async () => {
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--web"]).listening();
    const print = async () => (await runCli(["console", "--connect", server.url])).stdout;
    const urls = [await print(), await print()];
    for (const url of urls) {
      assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/#token=[\w-]{32}\n$/);
      assert.deepEqual(await openLoginUrl(url), { id: "local", role: "user" });
      assert.equal(await openLoginUrl(url), 401);
    }
    assert.notEqual(urls[0], urls[1]);
  });

  test("signs in as the principal of its token", async () => {
    const operator = "o".repeat(40);
    const tokens = ["token", "operator"].map((name) => join(scratch.path, name));
    const [tokenFile = "", operatorFile = ""] = tokens;
    writeFileSync(tokenFile, "t".repeat(40), { mode: 0o600 });
    writeFileSync(operatorFile, operator, { mode: 0o600 });
    await using server = await new ServeChild([
      ...["--listen", "ws://127.0.0.1:0", "--web", "--ws-auth", "capability-token"],
      ...["--ws-token-file", tokenFile, "--operator-token-file", operatorFile],
    ]).listening();
    const principal = async (file: string) =>
      openLoginUrl((await runCli(["console", "--connect", server.url, "--token-file", file])).stdout);
    assert.deepEqual(await principal(tokenFile), { id: "token", role: "user" });
    assert.deepEqual(await principal(operatorFile), { id: "operator", role: "operator" });
    const refused = await runCli(["console", "--connect", server.url]);
    assert.equal(refused.code, 1);
    assert.equal(refused.stdout, "");
  });

  test("forwards the console of a Unix socket, with WebSockets", async () => {
    const path = join(scratch.path, "server.sock");
    await using server = await new ServeChild(["--listen", `unix://${path}`, "--web"]).listening();
    assert.match(server.stderr, /web console: run `procwire console --connect unix:/);
    const { run, url } = await forwardedConsole("--connect", server.url);
    const { origin } = new URL(url);
    assert.deepEqual(await openLoginUrl(url), { id: `uid:${process.geteuid?.()}`, role: "user" });
    const socket = new WebSocket(origin.replace("http", "ws"), ["procwire.v1"]);
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    socket.close();
    run.child.kill("SIGINT");
    assert.equal((await run.ended).code, 0);
    await assert.rejects(fetch(origin));
  });

  test("forwards the console of a server that the bridge of ssh:// starts on demand", async () => {
    await using place = new UserServerDirectory();
    const { run, url } = await forwardedConsole("--connect", place.url());
    assert.deepEqual(await openLoginUrl(url), { id: `uid:${process.geteuid?.()}`, role: "user" });
    run.child.kill("SIGTERM");
    assert.equal((await run.ended).code, 0);
  });

  test("names the flag if the server has no console, and the right form of its options", async () => {
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    const missing = await runCli(["console", "--connect", server.url]);
    assert.equal(missing.code, 1);
    assert.match(missing.stderr, /this server has no web console; start it with `procwire serve --web`/);
    for (const [args, pattern] of [
      [["--port", "8080"], /--port applies to a forwarded console/],
      [["--port", "x"], /--port `x` must be a port from 0 to 65535/],
    ] as const) {
      const wrong = await runCli(["console", "--connect", server.url, ...args]);
      assert.equal(wrong.code, 2);
      assert.match(wrong.stderr, pattern);
    }
  });

  test("opens the URL with the browser of the user", async () => {
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--web"]).listening();
    const record = join(scratch.path, "opened");
    const browser = join(scratch.path, "browser");
    writeFileSync(browser, `#!/bin/sh\nprintf %s "$1" > ${record}.part && mv ${record}.part ${record}\n`, {
      mode: 0o755,
    });
    const args = ["console", "--open", "--connect", server.url];
    const { stdout } = await runCli(args, { BROWSER: browser });
    await until("the browser has the URL", () => existsSync(record));
    assert.equal(readFileSync(record, "utf8"), stdout.trim());
    const failed = await runCli(args, { BROWSER: join(scratch.path, "missing") });
    assert.equal(failed.code, 0);
    assert.match(failed.stderr, /cannot run `.*missing`; open the URL above yourself/);
  });
});
