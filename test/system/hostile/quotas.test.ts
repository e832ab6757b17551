/** Quotas per principal: one principal fills each quota, and another principal is unaffected. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { bearerOf, signToken, TEST_SECRET } from "../../support/auth/signed-server.ts";
import { startParams, type WireClient } from "../../support/servers/raw-connection.ts";
import { type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());
const secretFile = join(scratch.path, "secret");
writeFileSync(secretFile, TEST_SECRET, { mode: 0o600 });

const serveSeveral = (...flags: string[]) =>
  serve(
    "--ws-auth",
    "signed-bearer-token",
    "--ws-shared-secret-file",
    secretFile,
    "--metrics",
    "--operator-claim",
    "role=operator",
    ...flags,
  );

const bearer = (sub: string, claims: object = {}) =>
  bearerOf(signToken({ sub, exp: Math.floor(Date.now() / 1000) + 600, ...claims }));

async function connectAs(server: ServeChild, sub: string, params: object = {}): Promise<WireClient> {
  const client = await server.connect(bearer(sub));
  await client.handshake({ ...params });
  return client;
}

/** Starts a process that lives until it is terminated. */
const startCat = (client: WireClient, id: string) => client.start(id, ["cat"], { pipeStdin: true });

async function metric(server: ServeChild, name: string): Promise<number> {
  const headers = bearer("operator", { role: "operator" });
  const text = await (await fetch(`${server.url.replace("ws:", "http:")}/metrics`, { headers })).text();
  return Number(new RegExp(`^${name.replaceAll(/[{}"]/g, "\\$&")} (\\d+)`, "m").exec(text)?.[1] ?? 0);
}

interface QuotaCase {
  flag: string;
  /** Name of the quota in metrics. */
  quota: string;
  noun: string;
  hint: string;
  more?: string[];
  /** Acquires resource number `at`. Resolves to the error, if any. */
  acquire(client: WireClient, at: number): Promise<string | undefined>;
  /** Releases resource number `at`. */
  release(client: WireClient, at: number): Promise<unknown>;
}

const errorOf = async (client: WireClient, method: string, params: object) =>
  (await client.request(method, params)).error?.message;

const CASES: QuotaCase[] = [
  {
    flag: "--max-processes-per-principal",
    quota: "processes",
    noun: "processes",
    hint: "end one first",
    acquire: (client, at) => errorOf(client, "process/start", startParams(`p${at}`, ["cat"], { pipeStdin: true })),
    release: async (client, at) => {
      await client.call("process/terminate", { processId: `p${at}` });
      await client.finished(`p${at}`);
    },
  },
  {
    flag: "--max-forward-listeners-per-principal",
    quota: "forwardListeners",
    noun: "forwarding listeners",
    hint: "end one with forward/unlisten first",
    more: ["--allow-forward"],
    acquire: (client, at) => errorOf(client, "forward/listen", { listenId: `l${at}`, port: 0 }),
    release: (client, at) => client.call("forward/unlisten", { listenId: `l${at}` }),
  },
  {
    flag: "--max-file-handles-per-principal",
    quota: "fileHandles",
    noun: "file handles",
    hint: "close one with fs/close first",
    acquire: (client, at) => errorOf(client, "fs/open", { handleId: `h${at}`, path: `file://${secretFile}` }),
    release: (client, at) => client.call("fs/close", { handleId: `h${at}` }),
  },
  {
    flag: "--max-forward-streams-per-principal",
    quota: "forwardStreams",
    noun: "forwarded streams",
    hint: "close one first",
    more: ["--allow-forward"],
    acquire: (client, at) => {
      const port = (silent.address() as AddressInfo).port;
      return errorOf(client, "forward/open", { streamId: `s${at}`, host: "127.0.0.1", port });
    },
    release: (client, at) => client.call("forward/close", { streamId: `s${at}` }),
  },
];

/** A TCP server that neither sends nor closes. */
const silent = createTcpServer((socket) => void socket.on("error", () => undefined)).listen(0, "127.0.0.1");
before(() => silent.listening || once(silent, "listening"));
after(() => silent.close());

describe("quotas per principal", { timeout: 120_000 }, () => {
  for (const { flag, quota, noun, hint, more = [], acquire, release } of CASES) {
    test(`${flag} limits one principal, names the quota, and leaves another principal unaffected`, async () => {
      await using server = await serveSeveral(flag, "2", ...more);
      await using alice = await connectAs(server, "alice");
      await using alsoAlice = await connectAs(server, "alice");
      await using bob = await connectAs(server, "bob");
      assert.equal(await acquire(alice, 1), undefined);
      assert.equal(await acquire(alsoAlice, 2), undefined);
      assert.equal(
        await acquire(alice, 3),
        `too many ${noun}: this principal has 2 of 2 at once; ${hint}, or raise ${flag}`,
      );
      assert.equal(await metric(server, `procwire_quota_refusals_total{quota="${quota}"}`), 1);
      for (const at of [1, 2]) assert.equal(await acquire(bob, at), undefined);
      await release(alsoAlice, 2);
      assert.equal(await acquire(alice, 3), undefined);
    });
  }

  test("counts watched paths of all connections", async () => {
    await using server = await serveSeveral("--max-watched-paths-per-principal", "2");
    await using alice = await connectAs(server, "alice");
    await using alsoAlice = await connectAs(server, "alice");
    await using bob = await connectAs(server, "bob");
    const watch = (watchId: number, count: number) => ({
      watchId,
      missing: Array.from({ length: count }, (_, path) => `file://${scratch.path}/missing-${path}`),
    });
    assert.deepEqual(await alice.call("fs/watchMissing", watch(1, 2)), { watching: true });
    assert.equal(
      await errorOf(alsoAlice, "fs/watchMissing", watch(1, 1)),
      "too many watched paths: this principal has 2 of 2 at once; watch fewer paths, or raise --max-watched-paths-per-principal",
    );
    assert.deepEqual(await bob.call("fs/watchMissing", watch(1, 2)), { watching: true });
    await alice.call("fs/watchMissing", watch(2, 0));
    assert.deepEqual(await alsoAlice.call("fs/watchMissing", watch(2, 2)), { watching: true });
  });

  test("counts waits and reads that wait for output", async () => {
    await using server = await serveSeveral("--max-waits-per-principal", "2");
    await using alice = await connectAs(server, "alice");
    await using bob = await connectAs(server, "bob");
    for (const client of [alice, bob]) await startCat(client, "cat");
    const read = { processId: "cat", afterSeq: 0, waitMs: 60_000 };
    const wait = { processId: "cat", timeoutMs: 60_000 };
    alice.raw(JSON.stringify({ id: 1001, method: "process/read", params: read }));
    alice.raw(JSON.stringify({ id: 1002, method: "process/wait", params: wait }));
    const full =
      "too many waits: this principal has 2 of 2 at once; await the response of one first, or raise --max-waits-per-principal";
    for (const [method, params] of [
      ["process/read", read],
      ["process/wait", wait],
    ] as const) {
      const { code, message } = await alice.refused(method, params);
      assert.deepEqual({ code, message }, { code: -32600, message: full });
    }
    // A read that returns at once does not count.
    await alice.call("process/read", { processId: "cat", afterSeq: 0 });
    bob.raw(JSON.stringify({ id: 1001, method: "process/read", params: read }));
    bob.raw(JSON.stringify({ id: 1002, method: "process/wait", params: wait }));
    await bob.write("cat", "x");
    assert.ok((await bob.answer(1001)).result);
    await alice.write("cat", "x");
    await alice.answer(1001);
    await alice.call("process/wait", { ...wait, timeoutMs: 1 });
  });

  test("counts HTTP requests in flight", async () => {
    await using server = await serveSeveral("--max-http-requests-per-principal", "1");
    const held: (() => void)[] = [];
    const web = createServer((_, response) => void held.push(() => response.end())).listen(0, "127.0.0.1");
    await once(web, "listening");
    try {
      const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
      const get = (requestId: string) => ({ method: "GET", url, requestId });
      await using alice = await connectAs(server, "alice");
      await using bob = await connectAs(server, "bob");
      const first = alice.request("http/request", get("a"));
      await until("the request arrives", () => held.length === 1);
      assert.equal(
        await errorOf(alice, "http/request", get("b")),
        "too many HTTP requests: this principal has 1 of 1 at once; await the end of one first, or raise --max-http-requests-per-principal",
      );
      const ofBob = bob.request("http/request", get("a"));
      await until("the request of bob arrives", () => held.length === 2);
      for (const end of held) end();
      assert.equal((await first).result?.status, 200);
      assert.equal((await ofBob).result?.status, 200);
      const again = alice.request("http/request", get("c"));
      await until("the next request arrives", () => held.length === 3);
      held[2]?.();
      assert.equal((await again).result?.status, 200);
    } finally {
      web.close();
      web.closeAllConnections();
    }
  });

  test("counts connected and detached sessions, but no resume and no takeover", async () => {
    await using server = await serveSeveral(...["--max-sessions-per-principal", "2", "--detached-session-ttl", "600"]);
    await using alice = await connectAs(server, "alice");
    const gone = await connectAs(server, "alice");
    gone.cut();
    await until("the connection is gone", async () => (await metric(server, "procwire_connections")) === 1);
    await using third = await server.connect(bearer("alice"));
    assert.equal(
      await errorOf(third, "initialize", { clientName: "test" }),
      "too many sessions: this principal has 2 of 2 at once; end one first, or raise --max-sessions-per-principal",
    );
    await using bob = await connectAs(server, "bob");
    await bob.roundTrip();
    await using resumed = await connectAs(server, "alice", { resumeSessionId: gone.sessionId });
    await using taken = await connectAs(server, "alice", { resumeSessionId: alice.sessionId, takeOver: true });
    assert.deepEqual([resumed.sessionId, taken.sessionId], [gone.sessionId, alice.sessionId]);
    await using fourth = await server.connect(bearer("alice"));
    assert.match((await errorOf(fourth, "initialize", { clientName: "test" })) ?? "", /2 of 2/);
  });

  test("rejects connections above the quota with status 503", async () => {
    await using server = await serveSeveral("--max-connections-per-principal", "1");
    const alice = await connectAs(server, "alice");
    await assert.rejects(server.connect(bearer("alice")), /503/);
    await using bob = await connectAs(server, "bob");
    await bob.roundTrip();
    await alice.close();
    await until("alice connects again", async () => {
      const again = await server.connect(bearer("alice")).catch(() => null);
      await again?.close();
      return again !== null;
    });
  });

  test("guests count for the creator of their share link", async () => {
    await using server = await serveSeveral("--max-sessions-per-principal", "2");
    await using alice = await connectAs(server, "alice");
    await startCat(alice, "cat");
    const { handle } = ((await alice.call("process/list", {})).processes as { handle: string }[])[0] ?? {};
    const { token } = await alice.call("process/share", { handle, role: "viewer", ttlMs: 60_000 });
    await using guest = await server.connect(bearerOf(String(token)));
    await guest.handshake();
    await using another = await server.connect(bearerOf(String(token)));
    assert.match((await errorOf(another, "initialize", { clientName: "test" })) ?? "", /^too many sessions/);
  });

  test("without several principals, one principal may use the whole server limit", async () => {
    await using server = await serve("--max-server-processes", "4");
    await using client = await server.connect();
    await client.handshake();
    for (let at = 0; at < 4; at++) await startCat(client, `p${at}`);
    assert.match((await client.refused("process/start", startParams("p5", ["cat"]))).message, /this server may have 4/);
  });

  test("with several principals, one principal may use a quarter of the server limit", async () => {
    await using server = await serveSeveral("--max-server-processes", "8");
    await using alice = await connectAs(server, "alice");
    for (let at = 0; at < 2; at++) await startCat(alice, `p${at}`);
    assert.match((await alice.refused("process/start", startParams("p3", ["cat"]))).message, /has 2 of 2 at once/);
  });
});

describe("a server limit that several principals use up", { timeout: 120_000 }, () => {
  const GREEDY = ["alice", "bob", "carol", "dave", "erin"];
  /** Acquires until the server refuses. Returns the number of resources and the error. */
  async function fill(client: WireClient, { acquire }: Pick<QuotaCase, "acquire">) {
    for (let at = 1; ; at++) {
      const error = await acquire(client, at);
      if (error !== undefined) return { count: at - 1, error };
    }
  }
  const LIMITS: [string, QuotaCase | undefined, string[], number[]][] = [
    ["processes", CASES[0], ["--max-server-processes", "32"], [8, 8, 8, 4, 2]],
    ["forwarding listeners", CASES[1], ["--allow-forward"], [64, 64, 64, 32, 16]],
  ];

  for (const [noun, quotaCase, flags, counts] of LIMITS)
    test(`keeps ${noun} free for another principal`, async () => {
      assert.ok(quotaCase);
      await using server = await serveSeveral(...flags);
      await using clients = new AsyncDisposableStack();
      const found: number[] = [];
      for (const name of GREEDY) {
        const client = clients.use(await connectAs(server, name));
        const { count, error } = await fill(client, quotaCase);
        found.push(count);
        assert.match(error, new RegExp(`^too many ${noun}: this principal has ${count} of ${count} `));
      }
      assert.deepEqual(found, counts);
      const late = clients.use(await connectAs(server, "late"));
      assert.equal(await quotaCase.acquire(late, 1), undefined);
    });
});

describe("login URLs", { timeout: 120_000 }, () => {
  test("of a principal with many of them void no login URL of another principal", async () => {
    await using server = await serveSeveral("--web");
    const login = async (client: WireClient) =>
      String((await client.call("console/login", {})).fragment).replace("#token=", "");
    const signIn = async (token: string) =>
      (
        await fetch(`${server.url.replace("ws:", "http:")}/api/sign-in`, {
          method: "POST",
          headers: { "content-type": "application/json", origin: server.url.replace("ws:", "http:") },
          body: JSON.stringify({ token }),
        })
      ).status;
    await using bob = await connectAs(server, "bob");
    await using alice = await connectAs(server, "alice");
    const ofBob = await login(bob);
    const first = await login(alice);
    for (let at = 0; at < 200; at++) await login(alice);
    assert.equal(await signIn(ofBob), 200);
    assert.equal(await signIn(first), 401);
  });
});

describe("the memory quota of a principal", { timeout: 120_000 }, () => {
  const MIB = 1024 * 1024;
  const printed = (bytes: number) => ["sh", "-c", `head -c ${bytes} /dev/zero | tr '\\0' x; exec cat`];

  /** Starts a process that prints `bytes` bytes, and waits until the client has them. */
  async function print(client: WireClient, processId: string, bytes: number): Promise<void> {
    await client.start(processId, printed(bytes), { pipeStdin: true });
    await client.until(`all output of ${processId}`, () => client.outputBytes(processId).length === bytes);
  }

  const retained = async (client: WireClient, processId: string) => {
    let afterSeq = 0;
    let bytes = 0;
    for (;;) {
      const { chunks, nextSeq } = await client.call("process/read", { processId, afterSeq, maxBytes: 256 * 1024 });
      if (!Array.isArray(chunks) || chunks.length === 0) return bytes;
      for (const { chunk } of chunks as { chunk: string }[]) bytes += Buffer.from(chunk, "base64").length;
      afterSeq = Number(nextSeq) - 1;
    }
  };

  test("a principal above its quota loses its oldest output, and another principal loses nothing", async () => {
    await using server = await serveSeveral("--memory-budget-bytes", String(32 * MIB));
    await using alice = await connectAs(server, "alice");
    await using bob = await connectAs(server, "bob");
    await print(bob, "first", MIB);
    assert.equal(await retained(bob, "first"), MIB);
    // 12 MiB of retained output exceed a quarter of the 16 MiB that the server retains.
    for (let at = 0; at < 12; at++) await print(alice, `p${at}`, MIB);
    let ofAlice = 0;
    for (let at = 0; at < 12; at++) ofAlice += await retained(alice, `p${at}`);
    assert.ok(ofAlice <= 4 * MIB, `${ofAlice} bytes`);
    assert.ok(ofAlice > MIB, `${ofAlice} bytes`);
    assert.equal(await retained(bob, "first"), MIB);
  });

  test("processes of a principal that reads nothing are paused, and those of another principal run on", async () => {
    await using server = await serveSeveral("--memory-budget-bytes", String(16 * MIB));
    const alice = await connectAs(server, "alice");
    for (let at = 0; at < 16; at++) await alice.start(`p${at}`, ["sh", "-c", "read go; exec yes"], { pipeStdin: true });
    alice.pause();
    for (let at = 0; at < 16; at++)
      alice.raw(
        JSON.stringify({ id: 900 + at, method: "process/write", params: { processId: `p${at}`, chunk: "Cg==" } }),
      );
    await using bob = await connectAs(server, "bob");
    await until(
      "the processes of alice are paused",
      async () => (await metric(server, "procwire_processes_paused")) === 16,
    );
    await print(bob, "p", 4 * MIB);
    assert.ok((await metric(server, "procwire_memory_budget_used_bytes")) < 16 * MIB);
    alice.cut();
  });
});

describe("the memory of several principals that read nothing", { timeout: 120_000 }, () => {
  const MIB = 1024 * 1024;

  test("leaves memory for another principal, whose processes run on", async () => {
    await using server = await serveSeveral("--memory-budget-bytes", String(16 * MIB));
    const silentClients: WireClient[] = [];
    for (const name of ["alice", "carol", "dave", "erin", "frank"]) {
      const client = await connectAs(server, name);
      silentClients.push(client);
      for (let at = 0; at < 4; at++)
        await client.start(`p${at}`, ["sh", "-c", "read go; exec yes"], { pipeStdin: true });
      client.pause();
      for (let at = 0; at < 4; at++)
        client.raw(
          JSON.stringify({ id: 900 + at, method: "process/write", params: { processId: `p${at}`, chunk: "Cg==" } }),
        );
    }
    await until("the processes are paused", async () => (await metric(server, "procwire_processes_paused")) === 20);
    await using bob = await connectAs(server, "bob");
    const bytes = 4 * MIB;
    await bob.start("p", ["sh", "-c", `head -c ${bytes} /dev/zero | tr '\\0' x; exec cat`], { pipeStdin: true });
    await bob.until("all output", () => bob.outputBytes("p").length === bytes);
    for (const client of silentClients) client.cut();
  });
});

describe("the resources of principals", { timeout: 120_000 }, () => {
  test("all counts return to zero after disconnects, takeovers, resumes and kills in random order", async () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    let state = seed;
    const random = () => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
      return state / 2 ** 31;
    };
    const pick = <T>(items: readonly T[]): T | undefined => items[Math.floor(random() * items.length)];
    await using server = await serveSeveral(...["--detached-session-ttl", "1", "--allow-forward"]);
    const clients: { sub: string; client: WireClient }[] = [];
    let count = 0;
    const ACTIONS: (() => Promise<unknown>)[] = [
      async () => {
        const sub = pick(["alice", "bob", "carol"]) ?? "alice";
        clients.push({ sub, client: await connectAs(server, sub) });
      },
      async () => {
        const id = `p${++count}`;
        await pick(clients)?.client.request("process/start", startParams(id, ["cat"], { pipeStdin: true }));
      },
      async () => pick(clients)?.client.request("command/exec", { argv: ["cat"], cwd: "/", env: {}, tty: true }),
      async () => pick(clients)?.client.request("forward/listen", { listenId: `l${++count}`, port: 0 }),
      async () => pick(clients)?.client.request("fs/open", { handleId: `h${++count}`, path: `file://${secretFile}` }),
      async () => {
        const missing = [`file://${scratch.path}/missing`];
        await pick(clients)?.client.request("fs/watchMissing", { watchId: 1, missing });
      },
      async () => {
        const client = pick(clients)?.client;
        for (const method of ["process/wait", "process/read"])
          client?.raw(
            JSON.stringify({ id: 5000 + ++count, method, params: { processId: `p${count}`, waitMs: 60_000 } }),
          );
      },
      async () => pick(clients)?.client.request("process/start", startParams(`bad${++count}`, ["/nonexistent"])),
      async () => {
        const victim = pick(clients);
        if (!victim) return;
        clients.splice(clients.indexOf(victim), 1);
        if (random() < 0.5) victim.client.cut();
        else await victim.client.close();
      },
      async () => {
        const victim = pick(clients);
        if (!victim) return;
        clients.splice(clients.indexOf(victim), 1);
        const { sub, client } = victim;
        const next = await server.connect(bearer(sub));
        const params = { clientName: "test", resumeSessionId: client.sessionId, takeOver: true };
        if ((await next.request("initialize", params)).result) {
          next.notify("initialized", {});
          next.sessionId = client.sessionId;
          clients.push({ sub, client: next });
        } else next.cut();
        client.cut();
      },
    ];
    try {
      for (let at = 0; at < 120; at++) await pick(ACTIONS)?.();
      assert.ok(clients.length === 0 || (await metric(server, "procwire_principals")) > 0);
      for (const { client } of clients) client.cut();
      await until("all sessions end", async () => (await metric(server, "procwire_sessions")) === 0);
      await until("no principal holds a resource", async () => (await metric(server, "procwire_principals")) === 0);
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  });
});
