/** Credentials that never enter the sandbox, with real clients in real sandboxes. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { localSandboxes } from "../../src/host/host-sandboxes.ts";
import { type CredentialOrigin, SECRET, startOrigin } from "../support/network/credential-origin.ts";
import { startCli } from "../support/servers/run-cli.ts";
import { ServeChild } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { startMcp } from "../tools/mcp/start-mcp.ts";

const skip = skipUnless(localSandboxes().includes("managed-network"), "the sandbox cannot enforce network rules here");
const TIMEOUT = { timeout: 600_000, skip };
const POLICY = ["--sandbox", "read-only", "--network", "allow:localhost,127.0.0.1"];
const PLACEHOLDER = /procwire-credential-API_KEY-[\da-f]{32}/;

/** A directory for commands, apart from the home of the server. */
function workspace(t: TestContext, origin: CredentialOrigin): string {
  const path = join(origin.home, "work");
  mkdirSync(path);
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const definition = (origin: CredentialOrigin, header = "X-Api-Key") =>
  `API_KEY=localhost:${header}:file:${origin.secretFile}`;

const run = (origin: CredentialOrigin, cwd: string, words: readonly string[], script: string, env = {}) =>
  startCli(["run", ...words, "--", "/bin/bash", "-c", script], { cwd, env: { ...origin.env, ...env } }).ended;

describe("run --credential", TIMEOUT, () => {
  test("gives curl a placeholder, and the secret to its domain only", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const script = `curl -sS -H "X-Api-Key: $API_KEY" https://localhost:${origin.port}/echo
      curl -sS -H "X-Api-Key: $API_KEY" https://127.0.0.1:${origin.port}/echo
      curl -sSL -H "X-Api-Key: $API_KEY" https://localhost:${origin.port}/redirect`;
    const { code, stdout, stderr } = await run(origin, cwd, [...POLICY, "--credential", definition(origin)], script);
    assert.deepEqual([code, stderr], [0, ""]);
    const [first, second, redirected, followed] = origin.requests;
    assert.deepEqual([first?.host, first?.headers["x-api-key"]], [`localhost:${origin.port}`, SECRET]);
    assert.match(`${second?.headers["x-api-key"]}`, PLACEHOLDER);
    assert.equal(redirected?.headers["x-api-key"], SECRET);
    // curl repeats the header to the other host.
    assert.equal(followed?.host, `127.0.0.1:${origin.port}`);
    assert.match(`${followed?.headers["x-api-key"]}`, PLACEHOLDER);
    assert.match(stdout, PLACEHOLDER);
    assert.ok(!stdout.includes(SECRET));
  });

  test("serves node and git, and git sends the secret as a Basic password", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const git = (...args: string[]) => execFileSync("git", ["-c", "user.name=x", "-c", "user.email=x@x", ...args]);
    git("init", "-q", join(origin.home, "source"));
    writeFileSync(join(origin.home, "source", "file"), "content\n");
    git("-C", join(origin.home, "source"), "add", ".");
    git("-C", join(origin.home, "source"), "commit", "-qm", "first");
    git("clone", "-q", "--bare", join(origin.home, "source"), join(origin.home, "repository.git"));
    git("-C", join(origin.home, "repository.git"), "update-server-info");
    const node = `fetch("https://localhost:${origin.port}/echo", { headers: { authorization: "Bearer " + process.env.API_KEY } })
      .then((answer) => answer.json()).then(({ authorization }) => console.log(authorization.split("-")[0]));`;
    writeFileSync(join(cwd, "fetch.mjs"), node);
    const script = `node fetch.mjs && cd $(mktemp -d) &&
      git clone -q https://user:$API_KEY@localhost:${origin.port}/repository.git copy && cat copy/file copy/.git/config`;
    const words = [...POLICY, "--credential", definition(origin, "Authorization")];
    const { code, stdout, stderr } = await run(origin, cwd, words, script);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^Bearer procwire\ncontent\n/);
    assert.ok(!stdout.includes(SECRET));
    assert.equal(origin.requests[0]?.headers.authorization, `Bearer ${SECRET}`);
  });

  test("leaves a domain without a credential an untouched tunnel", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const script = `for host in localhost 127.0.0.1; do
      curl -sS -v -o /dev/null https://$host:${origin.port}/echo 2>&1 | grep -o 'issuer: .*'; done`;
    const { stdout } = await run(origin, cwd, [...POLICY, "--credential", definition(origin)], script);
    const [terminated, untouched] = stdout.trim().split("\n");
    const subject = execFileSync("openssl", ["x509", "-in", join(origin.home, "origin.pem"), "-noout", "-subject"]);
    const [, ownName = ""] = /CN *= *(.*)/.exec(String(subject).trim()) ?? [];
    assert.ok(untouched?.endsWith(ownName), stdout);
    assert.ok(terminated?.includes("procwire credentials") && !terminated.endsWith(ownName), stdout);
  });

  test("keeps the secret out of the environment, /proc and the readable files", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const variable = `API_KEY=localhost:X-Api-Key:env:ORIGIN_VALUE`;
    const script = `env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'
      ls -la ${origin.home}/secrets ${origin.home}/.procwire/credentials; cat ${origin.secretFile}
      cat ${origin.home}/.procwire/credentials/authority.pem; grep -rlsa ${SECRET.slice(0, 12)} ${origin.home} /tmp /dev/shm
      head -c 27 $SSL_CERT_FILE; echo; echo x >> $SSL_CERT_FILE; echo end`;
    const file = await run(origin, cwd, [...POLICY, "--credential", definition(origin)], script);
    rmSync(origin.secretFile);
    const env = await run(origin, cwd, [...POLICY, "--credential", variable], script, { ORIGIN_VALUE: SECRET });
    for (const { stdout, stderr } of [file, env]) {
      assert.ok(stdout.endsWith("-----BEGIN CERTIFICATE-----\nend\n"), stdout.slice(-500));
      assert.ok(!stdout.includes(SECRET) && !stdout.includes("PRIVATE KEY") && !stdout.includes("ORIGIN_VALUE="));
      assert.match(stderr, /authority\.pem: (?:Permission denied|No such file)/);
      assert.match(stderr, /ca-bundle-\w+\.pem: Read-only file system/);
    }
    assert.match(file.stderr, /secrets\/key: (?:Permission denied|No such file)/);
    assert.equal(existsSync(join(origin.home, ".procwire/credentials/authority.pem")), true);
  });

  test("rejects a missing source, an unreachable domain and a missing policy", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const missing = await run(origin, cwd, [...POLICY, "--credential", "K=localhost:A:env:NO_SUCH"], "true");
    assert.equal(missing.code, 125);
    assert.match(missing.stderr, /credential `K`: source `env:NO_SUCH` is not set in the environment of the server\n/);
    const other = await run(origin, cwd, [...POLICY, "--credential", "K=api.example:A:env:T"], "true");
    assert.match(other.stderr, /credential `K`: no rule allows `api\.example`; add --network allow:api\.example/);
    const without = await run(origin, cwd, ["--sandbox", "read-only", "--credential", "K=api.example:A:env:T"], "true");
    assert.match(without.stderr, /credential `K` requires a network policy/);
    const open = await run(origin, cwd, ["--credential", "K=api.example:A:env:T"], "true");
    assert.match(open.stderr, /credential `K` requires --sandbox/);
  });
});

describe("serve --credential", TIMEOUT, () => {
  test("defines credentials that clients use by name, and writes the secret to no log", async (t) => {
    using origin = await startOrigin();
    const cwd = workspace(t, origin);
    const audit = join(origin.home, "audit", "audit.jsonl");
    mkdirSync(join(origin.home, "audit"));
    const args = ["--listen", "ws://127.0.0.1:0", "--audit", audit, "--log-level", "debug"];
    await using server = await new ServeChild([...args, "--credential", definition(origin)], {
      env: origin.env,
    }).listening();
    const remote = (words: readonly string[], script: string) =>
      run(origin, cwd, ["--connect", server.url, ...POLICY, ...words], script);
    const curl = `curl -sS -H "X-Api-Key: $API_KEY" https://localhost:${origin.port}/echo`;
    const named = await remote(["--credential", "API_KEY"], curl);
    assert.equal(named.code, 0, named.stderr);
    assert.match(named.stdout, PLACEHOLDER);
    assert.equal(origin.requests[0]?.headers["x-api-key"], SECRET);

    const unnamed = await remote([], `echo "<$API_KEY>"`);
    assert.equal(unnamed.stdout, "<>\n");
    const unknown = await remote(["--credential", "OTHER"], "true");
    assert.match(unknown.stderr, /credential `OTHER` is not defined on this server; start it with --credential OTHER=/);
    const defined = await remote(["--credential", `STOLEN=localhost:A:file:${origin.secretFile}`], "true");
    assert.match(defined.stderr, /conflicts with --connect: the server reads the secrets/);
    rmSync(origin.secretFile);
    const missing = await remote(["--credential", "API_KEY"], "true");
    assert.match(missing.stderr, /credential `API_KEY`: source `file:.*` cannot be read/);

    await server.stop();
    for (const text of [readFileSync(audit, "utf8"), server.stderr, named.stdout, named.stderr])
      assert.ok(!text.includes(SECRET), text);
  });

  test("rejects a start with credentials and without an enforced network", async () => {
    using origin = await startOrigin();
    const args = ["--listen", "ws://127.0.0.1:0", "--credential", definition(origin)];
    await using server = await new ServeChild(args, { env: origin.env }).listening();
    const client = await server.connect();
    await client.handshake();
    const start = { processId: "p", argv: ["true"], cwd: "file:///", env: {}, tty: false, credentials: ["API_KEY"] };
    await assert.rejects(
      client.call("process/start", start),
      /credentials `API_KEY` require networkProxy, enforceManagedNetwork and a sandbox/,
    );
    await client.close();
  });
});

describe("mcp with [[credential]] in its rules file", TIMEOUT, () => {
  for (const more of [[], ["--attachable"]])
    test(`puts the secret into requests of commands ${more.join()}`, async () => {
      using origin = await startOrigin();
      const rules = join(origin.home, "rules.toml");
      writeFileSync(
        rules,
        `default = "allow"\n[network]\nallow = ["localhost"]\n[[credential]]\nname = "API_KEY"\ndomain = "localhost"
      header = "X-Api-Key"\nsource = "file:${origin.secretFile}"\n`,
      );
      await using mcp = await startMcp(
        ["--sandbox", "read-only", "--rules", rules, ...more],
        {},
        undefined,
        origin.env,
      );
      // The rules do not allow a line with variables.
      const script = join(origin.home, "call.sh");
      writeFileSync(script, `curl -sS -H "X-Api-Key: $API_KEY" https://localhost:${origin.port}/echo`);
      const cmd = `sh ${script}`;
      const { text } = await mcp.call("exec_command", { cmd, login: false, yield_time_ms: 30_000 });
      assert.match(text, PLACEHOLDER);
      assert.ok(!text.includes(SECRET));
      assert.equal(origin.requests[0]?.headers["x-api-key"], SECRET);
    });
});
