import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { after, before, describe, test } from "node:test";
import { agentsTools } from "../../src/adapters/agents.ts";
import { aiTools } from "../../src/adapters/ai.ts";
import { connectFromBrowser } from "../../src/client/browser.ts";
import * as procwire from "../../src/index.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";

// biome-ignore lint/suspicious/noExplicitAny: these are calls of JavaScript programs, which the compiler would reject.
type Untyped = any;

/** Types whose methods the caller implements, or that carry bytes between the parts of the library. */
const NOT_CALLED = new Set([
  ...["ApprovalPolicy", "BinaryBlocks", "ByteSource", "ByteStream", "ByteStreamEvents", "Clock", "Connection"],
  ...["DirectInput", "DisconnectedError", "InProcessClient", "InProcessConnection", "InProcessServer", "SecretFilter"],
  ...["SizeHistory", "Timer", "Tool", "WatchReceiver", "WebSocketLike"],
]);
/** Methods of a server that its own transports call, with objects that no program has. */
const NOT_CALLED_METHODS = new Set(
  ["accept", "connectInProcess", "isSandboxedPeer", "log", "restorePersistent", "setAuthenticator", "setConsole"]
    .concat("sharePrincipal")
    .map((name) => `ExecServer.${name}`),
);

/** All exported functions. */
const FUNCTIONS: Untyped = { ...procwire, connectFromBrowser, agentsTools, aiTools };

const START = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };
const SIZE = { rows: 24, cols: 80 };
const PORT = { port: 0, target: { host: "localhost", port: 1 } };

/** Returns an object whose members the library does not check. */
const opaque = (members: object) => Object.assign(Object.create({}), members);

/** Valid arguments of the calls of a process. */
const PROCESS_CALLS: Record<string, unknown[]> = {
  events: [{ afterSeq: 0 }],
  read: [{ maxBytes: 1 }],
  write: ["x", { writeId: "1" }],
  closeStdin: [{}],
  resize: [SIZE, {}],
  signal: ["SIGTERM", {}],
  kill: ["SIGTERM", {}],
  terminate: [{ type: "graceful", timeoutMs: 1 }, {}],
  wait: [{ timeoutMs: 1 }],
  snapshot: [{}],
};
const CLIENT_CALLS: Record<string, unknown[]> = {
  start: [START],
  attach: ["h", { role: "viewer" }],
  kill: ["h", { signal: "SIGTERM" }],
  tree: ["h", {}],
  connections: ["h", {}],
  share: ["h", { role: "viewer", ttlMs: 1 }],
  listShares: ["h", {}],
  revokeShare: ["h", "s", {}],
  list: [{ usage: true }],
  info: [{}],
  call: ["environment/info", opaque({}), { timeoutMs: 1 }],
  exec: [{ argv: ["true"], cwd: "/", env: {}, tty: false }, {}],
  write: ["s", "x", {}],
  terminate: ["s", {}],
};

/** Objects that a program gets from the library. */
interface Objects {
  readonly environment: Untyped;
  readonly client: Untyped;
  readonly spawned: Untyped;
  readonly local: Untyped;
  readonly remote: Untyped;
  readonly attached: Untyped;
  readonly file: Untyped;
  readonly server: Untyped;
  readonly listening: Untyped;
  readonly tools: Untyped;
}

/** Receiver and valid arguments of each method, by its type in docs/api.md; `procwire` has the functions. */
function validCalls(o: Objects): Record<string, [receiver: Untyped, Record<string, unknown[]>]> {
  const { files, http } = o.environment;
  const streams = [new PassThrough(), new PassThrough()];
  const convert = (options: unknown) => options;
  return {
    procwire: [
      FUNCTIONS,
      {
        run: [o.environment.getExecBackend(), ["true"], { maxBytes: 1 }],
        lines: [o.local, { afterSeq: 0 }],
        waitFor: [o.local, "x", { timeoutMs: 1 }],
        communicate: [o.local, "x", { maxBytes: 1 }],
        readEnvironmentsToml: ["/nonexistent"],
        spawnLocalExecServer: [{ program: "/nonexistent" }, { clientName: "x" }],
        copyFiles: [{ files, path: "/nonexistent/a" }, { files, path: "/nonexistent/b" }, { checksum: true }],
        forwardPort: [o.client, PORT],
        forwardPortBack: [o.client, PORT],
        forwardSocks: [o.client, { port: 0 }],
        createLocalHost: [{ noSandbox: true }],
        createLocalBackend: [{ subreaper: false }],
        listen: [o.server, { type: "websocket", host: "127.0.0.1", port: 0 }, { auth: { type: "none" } }],
        runMain: [{ logLevel: "error" }],
        runMainWithTransport: [{ type: "unix", path: "/nonexistent/socket" }, { logLevel: "error" }],
        createUnifiedExec: [{ backend: o.environment.getExecBackend(), cwd: "/" }],
        serveMcp: [{ tools: o.tools.tools, name: "x", version: "1" }],
        askOnTerminal: [{ askAbout: "everything" }],
        loadRulesFile: ["/nonexistent", opaque(procwire.askCaller())],
        connectFromBrowser: [{ url: "ws://127.0.0.1:1" }],
        agentsTools: [o.tools.tools, convert],
        aiTools: [o.tools.tools, convert],
      },
    ],
    Environment: [
      o.environment,
      {
        run: ["true", { reject: false }],
        spawn: ["true", { stdin: false }],
        attach: ["h", { role: "viewer" }],
        processes: [{ allSessions: false }],
        info: [{}],
      },
    ],
    "static Environment": [procwire.Environment, { create: ["ws://127.0.0.1:1", { clientName: "x" }] }],
    SpawnedProcess: [
      o.spawned,
      {
        ...PROCESS_CALLS,
        lines: [{ afterSeq: 0 }],
        waitFor: ["x", { timeoutMs: 1 }],
        readable: [{ stream: "stdout" }],
        readableStream: [{ stream: "stdout" }],
        pipe: [new PassThrough(), { end: true }],
      },
    ],
    ExecBackend: [o.environment.getExecBackend(), { start: [START], list: [{}] }],
    ExecProcess: [o.local, PROCESS_CALLS],
    RemoteProcess: [o.remote, { ...PROCESS_CALLS, inputs: [{}] }],
    AttachedProcess: [
      o.attached,
      { ...PROCESS_CALLS, inputs: [{}], renderScreen: [{}], becomeDriver: [SIZE], sizeAt: [1] },
    ],
    ExecServerClient: [o.client, CLIENT_CALLS],
    "static ExecServerClient": [
      procwire.ExecServerClient,
      {
        connectWebSocket: [{ url: "ws://127.0.0.1:1" }],
        connectUnix: [{ path: "/nonexistent" }],
        connectStdio: [...streams, { clientName: "x" }],
        connect: [() => assert.fail(), { clientName: "x" }],
        connectInProcess: [o.server, { clientName: "x" }],
      },
    ],
    RemoteBackend: [
      o.client.backend,
      { start: [START], attach: ["p", {}], attachByHandle: ["h", { role: "viewer" }], list: [{ usage: true }] },
    ],
    RemoteFiles: [
      files,
      {
        readFile: ["/nonexistent", {}],
        readText: ["/nonexistent", {}],
        writeFile: ["/nonexistent/a", "x", {}],
        createDirectory: ["/nonexistent/a", { recursive: false }],
        getMetadata: ["/nonexistent", { followSymlinks: true }],
        exists: ["/nonexistent", {}],
        canonicalize: ["/nonexistent", {}],
        readDirectory: ["/nonexistent", {}],
        walk: ["/nonexistent", { maxDepth: 1 }],
        remove: ["/nonexistent", { force: true }],
        copy: ["/nonexistent/a", "/nonexistent/b", { recursive: true }],
        open: ["/nonexistent", "read", {}],
        scan: ["/nonexistent", { followLinks: true }],
        writeAtomic: ["/nonexistent/a", { target: "x" }, { mode: 0o600 }],
        setAttributes: ["/nonexistent", { mode: 0o600 }],
        openPartial: ["/nonexistent/a", { followSymlinks: true }],
        waitForPath: ["/nonexistent", {}],
      },
    ],
    RemoteFile: [
      o.file,
      {
        read: [0, 1, {}],
        write: [0, "x", {}],
        checksum: [1, {}],
        commit: ["/nonexistent/a", { size: 1, digest: "x", mode: 0o600, modifiedAtMs: 0 }, {}],
      },
    ],
    RemoteHttp: [http, { request: [{ url: "http://127.0.0.1:1/" }], stream: [{ url: "http://127.0.0.1:1/" }] }],
    RemoteForwards: [
      o.client.forwards,
      {
        open: ["localhost", 1, {}],
        openAddress: [{ path: "/nonexistent" }, {}],
        check: [{ host: "localhost", port: 1 }],
        listenAddress: [{ path: "/nonexistent/a" }, convert, convert],
        watchPorts: [convert],
      },
    ],
    ListeningServer: [o.listening, { loginUrl: ["localhost"], close: ["replaced"] }],
  };
}

/** Returns the public functions with parameters that docs/api.md describes, as `Type.method` or `procwire.function`. */
function documentedCalls(): Set<string> {
  const found = new Set<string>();
  let type = "";
  for (const line of readFileSync(new URL("../../docs/api.md", import.meta.url), "utf8").split("\n")) {
    type = /^### (\w+)/.exec(line)?.[1] ?? type;
    const [, isStatic = "", method] = /^- `(static )?(\w+)(?:<[^(]*>)?\([^)]/.exec(line) ?? [];
    const [, name] = /^`(\w+)(?:<[^(]*>)?\([^)]/.exec(line) ?? [];
    const isHandler = method !== undefined && /^on[A-Z]/.test(method);
    if (method !== undefined && !isHandler && !NOT_CALLED.has(type)) found.add(`${isStatic}${type}.${method}`);
    if (name !== undefined && name in FUNCTIONS) found.add(`procwire.${name}`);
  }
  return new Set([...found].filter((name) => !NOT_CALLED_METHODS.has(name)));
}

/** Replaces one argument of a call. */
function withArgument(valid: readonly unknown[], at: number, value: unknown): unknown[] {
  return valid.map((argument, index) => (index === at ? value : argument));
}

/** Returns arguments with one mistake each: a wrong type of an argument or of an option, and an unknown option. */
function* mistakes(valid: readonly unknown[]): Iterable<[args: unknown[], expected: RegExp]> {
  for (const [at, argument] of valid.entries()) {
    yield [withArgument(valid, at, Symbol("wrong")), /`.+`: got a symbol, expected /];
    if (Object.getPrototypeOf(Object(argument)) !== Object.prototype) continue;
    const options = Object(argument);
    yield [withArgument(valid, at, { ...options, unknownName: 1 }), /unknown option `(\w+\.)?unknownName`; /];
    for (const name of Object.keys(options))
      yield [
        withArgument(valid, at, { ...options, [name]: Symbol("wrong") }),
        new RegExp(`\`(\\w+\\.)?${name}\`: got a symbol, expected `),
      ];
  }
}

describe("public functions", { timeout: 600_000 }, () => {
  const stack = new AsyncDisposableStack();
  let calls: ReturnType<typeof validCalls>;
  before(async () => {
    const child: ServeChild = await serve();
    stack.defer(async () => void (await child.stop()));
    const environment = stack.use(await procwire.Environment.create(null));
    const client = stack.use(await procwire.ExecServerClient.connectWebSocket({ url: child.url }));
    const other = stack.use(await procwire.Environment.create(child.url));
    const spawned = stack.use(await environment.spawn("cat"));
    const local = stack.use(
      await environment.getExecBackend().start({ ...START, processId: "local", argv: ["cat"], pipeStdin: true }),
    );
    const remote = stack.use(await client.start({ ...START, processId: "remote", argv: ["cat"], pipeStdin: true }));
    const attached = stack.use(await other.attach(remote.handle ?? assert.fail("no handle"), { role: "viewer" }));
    const file = stack.use(await environment.files.open("/etc/hostname"));
    const server = new procwire.ExecServer(procwire.createLocalHost({ noSandbox: true }));
    stack.defer(() => server.close());
    const listening = await procwire.listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    stack.defer(() => listening.close());
    const tools = stack.use(procwire.createUnifiedExec({ backend: environment.getExecBackend(), cwd: "/" }));
    calls = validCalls({ environment, client, spawned, local, remote, attached, file, server, listening, tools });
  });
  after(() => stack.disposeAsync());

  test("are all in the table of this test", () => {
    const listed = Object.entries(calls).flatMap(([type, [, table]]) =>
      Object.keys(table).map((method) => `${type}.${method}`),
    );
    assert.deepEqual(listed.toSorted(), [...documentedCalls()].toSorted());
  });

  test("reject a wrong type and an unknown option with an EINVAL error that names it", async () => {
    const accepted: string[] = [];
    for (const [type, [receiver, table]] of Object.entries(calls))
      for (const [method, valid] of Object.entries(table))
        for (const [args, expected] of mistakes(valid)) {
          const outcome = await outcomeOf(receiver, method, args);
          if (!expected.test(outcome) || !outcome.startsWith("EINVAL "))
            accepted.push(`${type}.${method}: ${outcome}, expected ${expected}`);
        }
    assert.deepEqual(accepted, []);
  });
});

/** Returns code and message of the error of a call. A call that settles later was accepted. */
async function outcomeOf(receiver: Untyped, method: string, args: unknown[]): Promise<string> {
  const called = (async () => {
    const result = await receiver[method](...args);
    return typeof result?.next === "function" ? result.next() : result;
  })();
  const { promise: pending, resolve } = Promise.withResolvers<string>();
  const timer = setTimeout(() => resolve("not rejected"), 5000);
  try {
    return await Promise.race([called.then(() => "accepted"), pending]);
  } catch (error) {
    return error instanceof procwire.ExecServerError ? `${error.code} ${error.message}` : String(error);
  } finally {
    clearTimeout(timer);
  }
}
