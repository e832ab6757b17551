/** Host variables that each subcommand passes to the processes it starts. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import {
  answer,
  functionCall,
  report,
  says,
  startMockResponses,
  toolOutputs,
} from "../../support/models/mock-responses.ts";
import { startCli } from "../../support/servers/run-cli.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const SECRETS: Record<string, string> = {
  API_KEY: "s-1",
  my_secret_thing: "s-2",
  GITHUB_TOKEN: "s-3",
  npm_config_authToken: "s-4",
  DB_PASSWORD: "s-5",
  PGPASSWORD: "s-6",
  PGPASSFILE: "s-7",
  DATABASE_URL: "postgres://me:s-8@db.example/x",
  MONGO_URI: "mongodb+srv://s-9@db.example",
  SENTRY_DSN: "s-10",
  AWS_ACCESS_KEY_ID: "s-11",
  AWS_SESSION_TOKEN: "s-12",
  AWS_SHARED_CREDENTIALS_FILE: "s-13",
  GOOGLE_APPLICATION_CREDENTIALS: "s-14",
  AZURE_CLIENT_SECRET: "s-15",
  AZURE_STORAGE_CONNECTION_STRING: "s-16",
  ARM_ACCESS_KEY: "s-17",
  MYSQL_PWD: "s-18",
  SSH_KEY2: "s-19",
  AZURE_CLIENT_CERTIFICATE_PATH: "s-20",
  AZURE_AUTH_LOCATION: "s-21",
  ARM_CLIENT_CERTIFICATE_PATH: "s-22",
  DOCKER_AUTH_CONFIG: "s-23",
  OCI_CLI_KEY_FILE: "s-24",
  BOTO_CONFIG: "s-25",
  CLOUDSDK_CONFIG: "s-26",
  REDISCLI_AUTH: "s-27",
  SSHPASS: "s-28",
  DSN: "s-29",
};
const PLAIN: Record<string, string> = {
  MONKEY: "p-1",
  KEYBOARD_LAYOUT: "p-2",
  TOKENIZERS_PARALLELISM: "p-3",
  HOMEPAGE_URL: "https://example.com/@p-4",
  SECRETARY: "p-5",
};
const ENV = { ...SECRETS, ...PLAIN };
const PLAIN_VALUES = Object.values(PLAIN);

/** Asserts that a text contains only the secrets named in `brought`, and every value that is not a secret. */
function check(text: string, brought: string[] = []): void {
  for (const [name, value] of Object.entries(SECRETS)) {
    const shown = new RegExp(`^${name}=`, "m").test(text);
    assert.equal(shown, brought.includes(name), `${name}=${value}: ${text}`);
  }
  for (const value of PLAIN_VALUES) assert.ok(text.includes(value), `${value} is missing: ${text}`);
}

const NAMES = Object.keys(SECRETS).sort();

for (const where of ["here", "on a server"] as const) {
  describe(`a program's environment ${where}`, { concurrency: 2 }, () => {
    /** Runs a command with secrets in the environment of the host that runs its programs, and nowhere else. */
    async function run(args: string[], env: Record<string, string> = {}) {
      using scratch = scratchDirectory();
      if (where === "here") return await startCli(args, { cwd: scratch.path, env: { ...ENV, ...env } }).ended;
      await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], { env: ENV }).listening();
      const [name = "", ...rest] = args;
      return await startCli([name, "--connect", server.url, ...rest], { cwd: scratch.path, env }).ended;
    }

    test("of `run` has no secret of the host, and `run` reports the removed variables once, all of them on request", async () => {
      const quiet = await run(["run", "--", "env"]);
      assert.equal(quiet.code, 0);
      assert.match(
        quiet.stderr,
        /^procwire run: left out \d+ variables that look secret \(\w+, \w+, \w+, …\); --verbose lists them, --inherit-env NAME passes one on\n$/,
      );
      assert.ok(!/s-\d|p-\d/.test(quiet.stderr), "a value leaked");
      check(quiet.stdout);
      const verbose = await run(["run", "--verbose", "--", "true"]);
      assert.match(verbose.stderr, /^procwire run: removed from the environment as secrets: /);
      const listed = verbose.stderr.replace(/^.*secrets: |; --inherit-env.*\n$/g, "").split(", ");
      assert.deepEqual(
        NAMES.filter((name) => !listed.includes(name)),
        [],
        verbose.stderr,
      );
      assert.ok(!/s-\d|p-\d/.test(verbose.stderr), "a value leaked");
    });

    test("of `run` includes variables that --env names or sets", async () => {
      const args = ["--inherit-env", "GITHUB_TOKEN", "--inherit-env", "DATABASE_URL", "--env", "API_KEY=own"];
      const { stdout } = await run(["run", ...args, "--", "env"]);
      check(stdout, ["GITHUB_TOKEN", "DATABASE_URL", "API_KEY"]);
      assert.match(stdout, /^API_KEY=own$/m);
    });

    test("of an agent's commands has no secret of the host", async () => {
      const mock = await startMockResponses((request) => {
        const outputs = toolOutputs(request.body);
        return outputs.length === 0
          ? answer(functionCall("c", "exec_command", { cmd: "env", login: false }))
          : says(outputs.join("\n"));
      });
      try {
        const args = ["exec", "-s", "danger-full-access", "--verbose", "--inherit-env", "SENTRY_DSN", "show"];
        const env = { OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "s-20" };
        const { code, stdout, stderr } = await run(args, env);
        assert.equal(code, 0, stderr);
        check(stdout, ["SENTRY_DSN"]);
        assert.ok(!stdout.includes("s-20"));
        assert.match(stderr, /procwire exec: removed from the environment as secrets: .*API_KEY/);
      } finally {
        await mock.close();
      }
    });
  });
}

test("the commands of a row's agent have no secret of the host", async () => {
  using scratch = scratchDirectory();
  writeFileSync(join(scratch.path, "rows.csv"), "name\nmia\n");
  const outputs: string[] = [];
  const mock = await startMockResponses((request) => {
    const [output] = toolOutputs(request.body);
    if (output === undefined) return answer(functionCall("c", "exec_command", { cmd: "env", login: false }));
    outputs.push(output);
    return report(request);
  });
  try {
    const flags = ["--tools", "exec", "--verbose", "--inherit-env", "SENTRY_DSN", "--output", "out.csv"];
    const { code, stderr } = await startCli(["fanout", "rows.csv", "--instruction", "{name}", ...flags], {
      cwd: scratch.path,
      env: { ...ENV, OPENAI_BASE_URL: mock.url, OPENAI_API_KEY: "s-20" },
    }).ended;
    assert.equal(code, 0, stderr);
    check(outputs.join("\n"), ["SENTRY_DSN"]);
    assert.match(stderr, /procwire fanout: removed from the environment as secrets: .*API_KEY/);
  } finally {
    await mock.close();
  }
});

test("the tools of `mcp` have no secret of the host", async () => {
  const transport = new StdioClientTransport({
    command: PROCWIRE,
    args: ["mcp", "--verbose", "--inherit-env", "SENTRY_DSN"],
    env: { PATH: process.env.PATH ?? "", ...ENV },
    stderr: "pipe",
  });
  let stderr = "";
  transport.stderr?.on("data", (chunk: Buffer) => {
    stderr += chunk.toString();
  });
  const client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
  try {
    const given = { cmd: "env", login: false };
    const { content } = await client.callTool({ name: "exec_command", arguments: given });
    const [first] = content;
    assert.ok(first?.type === "text");
    check(first.text, ["SENTRY_DSN"]);
    await until("the list of removed variables", () =>
      /procwire mcp: removed from the environment as secrets: .*API_KEY/.test(stderr),
    );
  } finally {
    await client.close();
  }
});

test("the environment of a wire request is exact without a policy; the default excludes of a policy match by name", async () => {
  await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], { env: ENV }).listening();
  await using client = await server.connect();
  await client.handshake();
  const exact = { PATH: "/usr/bin:/bin", API_KEY: "own", DATABASE_URL: "postgres://a:b@c/d" };
  assert.deepEqual(await client.start("exact", ["env"], { env: exact }), {
    processId: "exact",
    sandboxType: "none",
  });
  const lines = (await client.finished("exact")).output.trim().split("\n").sort();
  assert.deepEqual(
    lines,
    Object.entries(exact)
      .map(([name, value]) => `${name}=${value}`)
      .sort(),
  );

  const envPolicy = { inherit: "all", ignoreDefaultExcludes: false, exclude: [], set: {}, includeOnly: [] };
  const plain = await client.start("policy", ["env"], { env: {}, envPolicy });
  assert.deepEqual(plain, { processId: "policy", sandboxType: "none" });
  const { output } = await client.finished("policy");
  assert.doesNotMatch(output, /^MONKEY=/m);
  assert.match(output, /^PGPASSWORD=/m);

  const guarded = await client.start("guarded", ["env"], {
    env: {},
    envPolicy,
    secretGuard: { inherit: [] },
  });
  assert.ok(Array.isArray(guarded.droppedEnv) && guarded.droppedEnv.includes("PGPASSWORD"));
  check((await client.finished("guarded")).output);
});
