import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { mergeLimits } from "../../../src/exec/backend/process-limits.ts";
import { DEFAULT_ENV_POLICY, filterSecrets, looksSecret } from "../../../src/exec/backend/secret-filter.ts";
import type { ExecBackend, StartParams } from "../../../src/exec/exec-process.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";

const START: StartParams = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };

function backendOn(host: FakeHost, defaultCwd = "/srv"): ExecBackend {
  return { defaultCwd, start: (params) => host.backend.start(params), list: async () => [] };
}

describe("filterSecrets", () => {
  test("filters environments that a policy builds, and reports each dropped name once", async () => {
    const host = new FakeHost();
    const inner: string[] = [];
    const backend: ExecBackend = {
      ...backendOn(host),
      secrets: { allowed: ["A"], onDropped: (names) => inner.push(...names) },
      start: async (params) => {
        const started = await host.backend.start(params);
        return Object.assign(started, { droppedEnv: ["TOKEN"] });
      },
    };
    const dropped: string[][] = [];
    const filtered = filterSecrets(backend, {
      inherit: ["B"],
      onDropped: (names) => dropped.push([...names]),
    });
    assert.deepEqual([filtered.defaultCwd, filtered.secrets?.allowed], ["/srv", ["A", "B"]]);
    assert.deepEqual(await filtered.list(), []);
    const guarded = { ...START, envPolicy: DEFAULT_ENV_POLICY, secretGuard: { inherit: ["C"] } };
    for (let count = 0; count < 2; count++) await filtered.start(guarded);
    assert.deepEqual(host.process("p").params.secretGuard, { inherit: ["C", "A", "B"] });
    assert.deepEqual([dropped, inner], [[["TOKEN"]], ["TOKEN", "TOKEN"]]);
    for (const envPolicy of [undefined, { ...DEFAULT_ENV_POLICY, ignoreDefaultExcludes: true }]) {
      await filtered.start({ ...START, envPolicy });
      assert.equal(host.process("p").params.secretGuard, undefined);
    }
  });

  test("reports nothing if nothing was dropped", async () => {
    const filtered = filterSecrets(backendOn(new FakeHost()), {
      onDropped: () => assert.fail("nothing dropped"),
    });
    await filtered.start({ ...START, envPolicy: DEFAULT_ENV_POLICY });
  });
});

test("looksSecret recognizes credentials by whole words, names and URLs with user information", () => {
  const secrets = ["API_KEY", "apiKey", "api-key2", "GITHUB_TOKEN", "pgpassword", "SENTRY_DSN", "DSN"];
  for (const name of secrets) assert.equal(looksSecret(name, "x"), true, name);
  for (const name of ["MONKEY", "KEYBOARD", "PATH", "DSNX"]) assert.equal(looksSecret(name, "x"), false, name);
  assert.equal(looksSecret("DATABASE_URL", "postgres://user:pw@host/db"), true);
  assert.equal(looksSecret("DATABASE_URL", "postgres://host/db"), false);
  assert.equal(looksSecret("DATABASE", "postgres://user:pw@host/db"), false);
});

test("mergeLimits returns the smaller value of each limit", () => {
  assert.deepEqual(mergeLimits({ cpuTimeMs: 5, processes: 3 }, { cpuTimeMs: 4, openFiles: 1 }), {
    ...{ cpuTimeMs: 4, processes: 3, openFiles: 1 },
  });
  assert.equal(mergeLimits(), undefined);
});
