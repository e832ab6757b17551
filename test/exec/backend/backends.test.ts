import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { mergeLimits } from "../../../src/exec/backend/process-limits.ts";
import { ReopeningBackend, type SessionBackend } from "../../../src/exec/backend/reopening-backend.ts";
import { DEFAULT_ENV_POLICY, filterSecrets, looksSecret } from "../../../src/exec/backend/secret-filter.ts";
import type { ExecBackend, StartParams } from "../../../src/exec/exec-process.ts";
import { DisconnectedError } from "../../../src/protocol/errors.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { settle } from "../../support/system/settle.ts";

const START: StartParams = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };

function backendOn(host: FakeHost, defaultCwd = "/srv"): ExecBackend {
  return { defaultCwd, start: (params) => host.backend.start(params), list: async () => [] };
}

/** A session whose loss and close a test controls. */
class FakeSession implements SessionBackend {
  readonly backend = backendOn(new FakeHost());
  isLost = false;
  closes = 0;

  async isUsable(): Promise<boolean> {
    return !this.isLost;
  }

  async close(): Promise<void> {
    this.closes++;
  }
}

describe("ReopeningBackend", () => {
  function rig(open: () => Promise<SessionBackend>) {
    const first = new FakeSession();
    const clock = new ManualClock();
    return { first, clock, backend: new ReopeningBackend(first, open, clock) };
  }

  test("uses its session while the session is usable", async () => {
    const { backend, first } = rig(() => assert.fail("no new session expected"));
    assert.equal((await backend.start(START)).processId, "p");
    assert.deepEqual(await backend.list(), []);
    assert.deepEqual([backend.defaultCwd, backend.reopenCount], ["/srv", 0]);
    await backend.close();
    assert.equal(first.closes, 1);
    first.isLost = true;
    await assert.rejects(backend.start(START), /the connection was closed/);
  });

  test("opens one session for all calls after a loss, and closes the lost one", async () => {
    const opened: FakeSession[] = [];
    const { backend, first } = rig(async () => {
      const session = new FakeSession();
      opened.push(session);
      return session;
    });
    first.isLost = true;
    await Promise.all([backend.start(START), backend.list(), backend.start({ ...START, processId: "q" })]);
    assert.deepEqual([opened.length, backend.reopenCount, first.closes], [1, 1, 1]);
    await backend.close();
    assert.equal(opened[0]?.closes, 1);
  });

  test("retries every 200 ms for 5 s, and again with the next call", async () => {
    let attempts = 0;
    const { backend, first, clock } = rig(async () => {
      attempts++;
      if (attempts <= 25) throw new Error("connection refused");
      return new FakeSession();
    });
    first.isLost = true;
    const failed = assert.rejects(backend.start(START), /connection refused/);
    await clock.advance(199);
    assert.equal(attempts, 1);
    await clock.advance(1);
    assert.equal(attempts, 2);
    await clock.advance(4600);
    assert.equal(attempts, 25);
    await failed;
    assert.equal((await backend.start(START)).processId, "p");
    assert.equal(attempts, 26);
  });

  test("stops retrying when it is closed, and closes a session that opens later", async () => {
    const gate = Promise.withResolvers<SessionBackend>();
    const { backend, first } = rig(() => gate.promise);
    first.isLost = true;
    const starting = backend.start(START);
    await settle();
    const closing = backend.close();
    const late = new FakeSession();
    gate.resolve(late);
    await Promise.all([starting, closing]);
    assert.ok(late.closes >= 1);
    const failing = rig(() => Promise.reject(new Error("connection refused")));
    failing.first.isLost = true;
    const failed = assert.rejects(failing.backend.start(START), /connection refused/);
    await settle();
    await Promise.all([failing.backend.close(), failing.clock.advance(200)]);
    await failed;
  });

  test("reports that a start without a result may have happened, and does not change other errors", async () => {
    const errors = [new DisconnectedError("reset"), new Error("no memory")];
    const host = new FakeHost();
    const session: SessionBackend = {
      backend: { ...backendOn(host), start: () => Promise.reject(errors.shift()) },
      isUsable: async () => true,
      close: async () => undefined,
    };
    const backend = new ReopeningBackend(session, () => assert.fail("no new session expected"));
    await assert.rejects(backend.start(START), /reset; the process may have been started or not$/);
    await assert.rejects(backend.start(START), { message: "no memory" });
  });
});

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
