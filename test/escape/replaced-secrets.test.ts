/** A running sandbox cannot read a secret of the server that is replaced by rename. */
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { collectOutput } from "../../src/exec/run/collect-output.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { writeSecret } from "../support/auth/secret-file.ts";
import { says, startMockResponses } from "../support/models/mock-responses.ts";
import { startParams } from "../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { NO_SUPERVISOR, SupervisedServer } from "../support/servers/supervised-server.ts";
import { opensslMissing, TestAuthority } from "../support/system/certificates.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";
import { readOnly, testEscape, workspaceWrite } from "./inside.ts";

const UNRESTRICTED = { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" };
const OLD = "the-first-token-of-the-server-that-is-long-enough";
const NEW = "the-second-token-of-the-server-that-is-long-enough";

/** Writes a file that every user can read, so that only the sandbox hides it. */
function write(path: string, text: string): void {
  writeFileSync(path, text);
  chmodSync(path, 0o644);
}

testEscape(
  "a token, an operator token and an audit log that replace hidden files stay hidden from a running command",
  async (fixture) => {
    const secrets = join(fixture.directory, "secrets");
    const workspace = fixture.makeDirectory("work");
    const go = join(workspace, "go");
    const files = ["token", "operator", "audit.jsonl"].map((name) => join(secrets, name));
    const script = `echo up >up; until [ -e go ]; do sleep 0.05; done; cat ${files.join(" ")} ${secrets}/*; ls -la ${secrets}; echo over`;
    const running = fixture.script(workspaceWrite(workspace), `cd ${workspace}; ${script}`);
    await until("the command", () => existsSync(join(workspace, "up")));
    for (const file of files) {
      write(`${file}.new`, `${NEW}\n`);
      renameSync(`${file}.new`, file);
    }
    write(go, "");
    const { output } = await running;
    assert.match(output, /over/);
    assert.doesNotMatch(output, /-token-of-the-server|audit\.jsonl\n/);
    assert.equal(readFileSync(files[0] ?? "", "utf8"), `${NEW}\n`);
    // A later command does not see them either.
    assert.doesNotMatch((await fixture.script(readOnly(), `cat ${files.join(" ")}`)).output, /-token-of-the-server/);
  },
  {
    serveArgs: (directory) => {
      const secrets = join(directory, "secrets");
      mkdirSync(secrets);
      chmodSync(secrets, 0o755);
      for (const name of ["token", "operator"])
        write(join(secrets, name), `${name === "token" ? OLD : `operator-${OLD}`}\n`);
      write(join(secrets, "audit.jsonl"), "");
      chmodSync(join(secrets, "audit.jsonl"), 0o666);
      return [
        ...["--ws-auth", "capability-token", "--ws-token-file", join(secrets, "token")],
        ...["--operator-token-file", join(secrets, "operator"), "--audit", join(secrets, "audit.jsonl")],
      ];
    },
    headers: { authorization: `Bearer ${OLD}` },
  },
);

testEscape(
  "a sandboxed start whose root is the directory of the server's secrets is rejected",
  async (fixture) => {
    const secrets = join(fixture.directory, "secrets");
    const start = startParams("p", ["/bin/true"], { sandbox: workspaceWrite(secrets) });
    const error = await fixture.client.refused("process/start", start);
    assert.match(error.message, /root `.*secrets` contains the secret file `.*token` of the server; move the file/);
  },
  {
    serveArgs: (directory) => {
      mkdirSync(join(directory, "secrets"));
      write(join(directory, "secrets", "token"), `${OLD}\n`);
      return ["--ws-auth", "capability-token", "--ws-token-file", join(directory, "secrets", "token")];
    },
    headers: { authorization: `Bearer ${OLD}` },
  },
);

testEscape(
  "a server rejects sandboxed starts once the directory of its secret contains another file, and names the remedy",
  async (fixture) => {
    write(join(fixture.directory, "secrets", "notes"), "");
    const start = startParams("p", ["/bin/true"], { sandbox: readOnly() });
    const { message } = await fixture.client.refused("process/start", start);
    assert.match(
      message,
      /secret file `.*\/token`: directory `.*\/secrets` also contains `notes`, so .*; move the file/,
    );
    assert.equal((await fixture.run(UNRESTRICTED, ["/bin/true"])).exitCode, 0, "other starts are accepted");
  },
  {
    serveArgs: (directory) => {
      mkdirSync(join(directory, "secrets"));
      write(join(directory, "secrets", "token"), `${OLD}\n`);
      return ["--ws-auth", "capability-token", "--ws-token-file", join(directory, "secrets", "token")];
    },
    headers: { authorization: `Bearer ${OLD}` },
  },
);

testEscape(
  "the target of a link to a secret is hidden with its directory",
  async (fixture) => {
    const target = join(fixture.directory, "store", "token-1");
    const { output } = await fixture.script(readOnly(), `cat ${target} ${join(fixture.directory, "secrets", "token")}`);
    assert.doesNotMatch(output, /-token-of-the-server/);
    assert.equal(readFileSync(target, "utf8"), `${OLD}\n`);
  },
  {
    serveArgs: (directory) => {
      for (const name of ["secrets", "store"]) mkdirSync(join(directory, name), { mode: 0o755 });
      write(join(directory, "store", "token-1"), `${OLD}\n`);
      symlinkSync("../store/token-1", join(directory, "secrets", "token"));
      return ["--ws-auth", "capability-token", "--ws-token-file", join(directory, "secrets", "token")];
    },
    headers: { authorization: `Bearer ${OLD}` },
  },
);

const missingOpenssl = opensslMissing();
const noOpenssl = skipUnless(missingOpenssl === null, missingOpenssl ?? "");

/** Writes a secret and another file to a directory. Returns the path of the secret. */
function shared(directory: string, secret = OLD): string {
  write(join(directory, "notes"), "");
  write(join(directory, "token"), `${secret}\n`);
  return join(directory, "token");
}

describe("a server whose secret shares its directory with other files", { skip: noSandbox }, () => {
  const token = (path: string) => ["--ws-auth", "capability-token", "--ws-token-file", path];

  test("refuses to start, and names the flag, the file, the directory, the remedy and --no-sandbox", async () => {
    for (const [flag, args] of [
      ["--ws-token-file", token],
      ["--ws-shared-secret-file", (path) => ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", path]],
      ["--audit", (path) => ["--audit", path]],
      ["--credential", (path) => ["--credential", `KEY=api.example:Authorization:file:${path}`]],
    ] satisfies [string, (path: string) => string[]][]) {
      using directory = scratchDirectory();
      const path = shared(directory.path);
      await using server = new ServeChild(["--listen", "ws://127.0.0.1:0", ...args(path)]);
      assert.equal((await server.exited).code, 2, server.stderr);
      assert.ok(
        server.stderr.startsWith(
          `procwire serve: ${flag} ${path}: directory \`${directory.path}\` also contains \`notes\``,
        ),
        server.stderr,
      );
      assert.match(
        server.stderr,
        /`mkdir -p -m 700 ~\/\.procwire\/secrets`\); or offer no sandboxes with --no-sandbox/,
      );
    }
  });

  test("refuses to start with a TLS key there; a key that replaces a hidden one stays hidden", {
    skip: noOpenssl,
  }, async () => {
    using directory = scratchDirectory();
    chmodSync(directory.path, 0o755);
    const authority = new TestAuthority(directory.path);
    const { key, cert } = authority.issue("IP:127.0.0.1");
    const tls = (path: string) => ["--listen", "ws://127.0.0.1:0", "--tls-cert", cert, "--tls-key", path];
    const path = shared(directory.path, readFileSync(key, "utf8"));
    await using refused = new ServeChild(tls(path));
    assert.equal((await refused.exited).code, 2, refused.stderr);
    assert.ok(refused.stderr.startsWith(`procwire serve: --tls-key ${path}: directory `), refused.stderr);

    await using server = await new ServeChild(tls(key)).listening();
    const tlsCa = readFileSync(authority.caFile, "utf8");
    await using client = await NodeExecServerClient.connectWebSocket({ url: server.url, tlsCa });
    const go = join(directory.path, "go");
    const script = `echo up; until [ -e ${go} ]; do sleep 0.05; done; cat ${key} ${dirname(key)}/*; echo over`;
    const running = await client.start({
      processId: "reader",
      argv: ["/bin/sh", "-c", script],
      cwd: "/",
      env: {},
      tty: false,
      sandbox: readOnly(),
    });
    await waitFor(running, /up/);
    write(`${key}.new`, readFileSync(key, "utf8"));
    renameSync(`${key}.new`, key);
    write(go, "");
    const { stdout } = await collectOutput(running);
    assert.match(Buffer.from(stdout).toString(), /^up\nover\n$/);
  });

  test("starts with --no-sandbox, offers no sandboxes and rejects starts that request one", async () => {
    using directory = scratchDirectory();
    const path = shared(directory.path);
    await using server = await serve("--no-sandbox", ...token(path));
    await using client = await server.connect({ authorization: `Bearer ${OLD}` });
    await client.handshake();
    const { sandboxes, capabilities } = await client.call("environment/info", {});
    assert.deepEqual([sandboxes, Object(capabilities).networkProxyLaunch], [[], false]);
    const start = (id: string, sandbox: object) => startParams(id, ["/bin/true"], { sandbox });
    const { message } = await client.refused("process/start", start("rejected", readOnly()));
    assert.match(message, /the server offers no sandboxes; start it without --no-sandbox/);
    const read = await client.refused("fs/readFile", { path: "file:///etc/hostname", sandbox: readOnly() });
    assert.match(read.message, /the server offers no sandboxes/);
    await client.call("process/start", start("accepted", UNRESTRICTED));
    assert.doesNotMatch(server.stderr, /secret file/);
  });

  test("accepts /dev/null as audit log, and --no-sandbox conflicts with --require-sandbox", async () => {
    await using server = await serve("--audit", "/dev/null");
    assert.doesNotMatch(server.stderr, /secret file/);
    await using both = new ServeChild(["--no-sandbox", "--require-sandbox", "read-only"]);
    assert.equal((await both.exited).code, 2);
    assert.match(both.stderr, /--no-sandbox conflicts with --require-sandbox/);
  });

  test("still replaces a crashed server below its supervisor, and warns", { skip: NO_SUPERVISOR }, async () => {
    using directory = scratchDirectory();
    const secret = writeSecret(directory.path, "token", `${OLD}\n`);
    await using server = await SupervisedServer.start(...token(secret));
    write(join(dirname(secret), "notes"), "");
    await server.killServer([]);
    await until("the warning", () => /sandboxed starts are rejected: secret file .*`notes`/.test(server.serve.stderr));
    await using client = await server.serve.connect({ authorization: `Bearer ${OLD}` });
    await client.handshake();
  });
});

describe("a command whose secret shares its directory with other files", { skip: noSandbox }, () => {
  const credential = (path: string) => ["--credential", `KEY=api.example:Authorization:file:${path}`];
  const http = ["--http", "127.0.0.1:0", "--ws-auth"];
  const tokenFile = (path: string) => ["--token-file", path];
  const DATABASE = "postgres://procwire@127.0.0.1:1/none";
  const COMMANDS: [command: string, flag: string, args: (path: string) => string[]][] = [
    ["mcp", "--ws-token-file", (path) => [...http, "capability-token", "--ws-token-file", path]],
    ["mcp", "--ws-shared-secret-file", (path) => [...http, "signed-bearer-token", "--ws-shared-secret-file", path]],
    ["mcp", "--token-file", tokenFile],
    ["mcp", "--credential", (path) => [...credential(path), "--network", "allow:api.example"]],
    ["exec", "--credential", (path) => [...credential(path), "--network", "allow:api.example", "go"]],
    ["exec", "--token-file", (path) => [...tokenFile(path), "go"]],
    ["fanout", "--database-url-file", (path) => ["notes", ...TASK, "--database-url-file", path]],
    ["fanout worker", "--database-url-file", (path) => ["--database-url-file", path]],
  ];
  const TASK = ["--instruction", "about {name}", "--tools", "exec"];
  /** A local host name only, so that no proxy variable of the host matters. */
  const env = { OPENAI_BASE_URL: "http://127.0.0.1:1", OPENAI_API_KEY: "dummy", CODEX_EXEC_SERVER_URL: "" };
  const start = (directory: string, command: string, args: string[], more: Record<string, string> = {}) =>
    new ServeChild(args, {
      command: [PROCWIRE, ...command.split(" ")],
      env: { ...env, HOME: directory, ...more },
      cwd: directory,
    });

  for (const [command, flag, args] of COMMANDS)
    test(`\`${command} ${flag}\` refuses to start with a sandbox, and names file, flag and remedy`, async () => {
      using directory = scratchDirectory();
      const path = shared(directory.path, flag === "--database-url-file" ? DATABASE : OLD);
      await using child = start(directory.path, command, ["--sandbox", "workspace-write", ...args(path)]);
      assert.equal((await child.exited).code, 2, child.stderr);
      const expected = `procwire ${command.split(" ")[0]}: ${flag} ${path}: directory \`${directory.path}\` also contains \`notes\``;
      assert.ok(child.stderr.startsWith(expected), child.stderr);
      const unsandboxed = command === "exec" ? "--dangerously-bypass-approvals-and-sandbox" : "--sandbox none";
      assert.match(child.stderr, /move the file to a directory that contains only secrets of this server/);
      assert.ok(child.stderr.includes(`; or run commands without a sandbox (${unsandboxed})`), child.stderr);
    });

  test("`exec`, `mcp` and `fanout` start without a sandbox", async () => {
    using directory = scratchDirectory();
    const path = shared(directory.path, DATABASE);
    const model = await startMockResponses(() => says("done"));
    await using _ = { [Symbol.asyncDispose]: () => model.close() };
    const bypass = ["--dangerously-bypass-approvals-and-sandbox", "--token-file", path, "go"];
    await using exec = start(directory.path, "exec", bypass, { OPENAI_BASE_URL: model.url });
    assert.equal((await exec.exited).code, 0, exec.stderr);
    await using mcp = start(directory.path, "mcp", [...http, "capability-token", "--ws-token-file", path]);
    mcp.child.stdout?.on("data", (data: Buffer) => {
      mcp.stdout += data;
    });
    await until("the URL", () => mcp.stdout.includes("http://127.0.0.1:"), mcp.exited);
    await using fanout = start(directory.path, "fanout", ["notes", ...TASK, "--database-url-file", path]);
    await until("the missing database", () => /database.*ECONNREFUSED/.test(fanout.stderr), fanout.exited);
  });
});
