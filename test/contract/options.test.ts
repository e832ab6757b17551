import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import {
  communicate,
  copyFiles,
  createLocalHost,
  Environment,
  ExecServerError,
  lines,
  run,
  waitFor,
} from "../../src/index.ts";
import { type ServeChild, serve } from "../support/servers/serve.ts";

// biome-ignore lint/suspicious/noExplicitAny: these are calls of JavaScript programs, which the compiler would reject.
type Untyped = any;
type UntypedCall = (environment: Untyped) => unknown;

const START = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };
const start = (change: object) => (environment: Untyped) => environment.getExecBackend().start({ ...START, ...change });

/** Calls a method of a live process, which reads its stdin. */
const onProcess = (call: (process: Untyped) => unknown) => async (environment: Untyped) => {
  await using process = await environment.spawn("cat");
  return await call(process);
};

/** Calls a method of an open file. */
const onFile = (call: (file: Untyped) => unknown) => async (environment: Untyped) => {
  await using file = await environment.files.open("/etc/hostname");
  return await call(file);
};

/** Rejected calls, each with the message of its error. */
const REJECTED: readonly (readonly [UntypedCall, string | RegExp])[] = [
  [(e) => e.spawn("cat", { stdin: "pipe" }), 'spawn: invalid `stdin`: got "pipe", expected true or false'],
  [(e) => e.spawn("cat", { timeout: 5 }), "spawn: unknown option `timeout`; did you mean `timeoutMs`?"],
  [(e) => e.spawn("cat", null), "spawn: invalid `options`: got null, expected an object"],
  [(e) => e.spawn("cat", { size: { rows: 24 } }), "spawn: missing `size.cols`; expected an integer from 0 to 65535"],
  [(e) => e.spawn("cat", { lifetime: "forever" }), /^spawn: invalid `lifetime`: got "forever", expected "session" or /],
  [(e) => e.spawn("cat", { name: "A B" }), /^invalid name `A B`: expected 1 to 63 characters /],
  [(e) => e.spawn("cat", { labels: { team: 5 } }), "spawn: invalid `labels.team`: got 5, expected a string"],
  [(e) => e.attach(""), 'attach: invalid `handle`: got "", expected a non-empty string'],
  [(e) => e.spawn(5), "spawn: invalid `command`: got 5, expected a program or an array of program and arguments"],
  [(e) => e.spawn(["echo", 5]), "spawn: invalid `command.1`: got 5, expected a string"],
  [(e) => e.spawn(["echo", "a\0"]), 'spawn: invalid `command.1`: got "a\\u0000", expected a string without NUL bytes'],
  [(e) => e.spawn("tr\0ue"), /^spawn: invalid `command`: got "tr\\u0000ue", expected a program or an array/],
  [(e) => e.run("true", { env: { A: "\0" } }), /^run: invalid `env.A`: got "\\u0000", expected a string without NUL/],
  [(e) => e.run("true", { env: { "A=B": "x" } }), 'run: invalid `env`: got "A=B", expected a name without `=`'],
  [(e) => e.run("true", { cwd: "src" }), "cwd `src` must be an absolute path or a file: URI"],
  [(e) => e.run("true", { cwd: 5 }), "run: invalid `cwd`: got 5, expected an absolute path or a file: URI"],
  [start({ cwd: "src" }), "cwd `src` must be an absolute path or a file: URI"],
  [(e) => e.spawn([]), "missing executable in command; expected its name or [executable, ...arguments]"],
  [
    (e) => e.run("true", { timeoutMs: "5s" }),
    /^run: invalid `timeoutMs`: got "5s", expected milliseconds as a non-neg/,
  ],
  [(e) => e.run("true", { timeoutMs: 1.5 }), /^run: invalid `timeoutMs`: got 1.5, expected milliseconds as a non-neg/],
  [(e) => e.run("true", { environment: {} }), "run: unknown option `environment`; did you mean `env`?"],
  [(e) => e.run("true", { env: { PORT: 8080 } }), "run: invalid `env.PORT`: got 8080, expected a string"],
  [(e) => e.run("true", { shell: true }), /^run: unknown option `shell`; expected one of `signal`, .*`reject`$/],
  [(e) => e.run("true", { signal: new AbortController() }), /^run: invalid `signal`: got an instance of AbortContr/],
  [(e) => e.run("true", { input: 5 }), /^run: invalid `input`: got 5, expected a string, a typed array, /],
  [(e) => e.run("true", { envPolicy: { inherit: "most" } }), /^run: invalid `envPolicy.inherit`: got "most", expected/],
  [
    (e) => run(e.getExecBackend(), "true" as never),
    'run: invalid `argv`: got "true", expected an array of strings: program and arguments',
  ],
  [
    (e) => run(e.getExecBackend(), ["echo", "a\0"]),
    'run: invalid `argv.1`: got "a\\u0000", expected a string without NUL bytes',
  ],
  [(e) => run(e.getExecBackend(), ["true"], { maxBuffer: 1 } as never), /^run: unknown option `maxBuffer`; /],
  [
    () => createLocalHost({ maskPaths: [] } as never),
    "createLocalHost: unknown option `maskPaths`; did you mean `maskedPaths`?",
  ],
  [
    () => createLocalHost({ maskedPaths: "/etc" } as never),
    'createLocalHost: invalid `maskedPaths`: got "/etc", expected an array of strings',
  ],
  [
    () => createLocalHost({ config: { maxProcesses: "5" } } as never),
    'createLocalHost: invalid `config.maxProcesses`: got "5", expected a non-negative number',
  ],
  [() => createLocalHost({ log: "warn" } as never), 'createLocalHost: invalid `log`: got "warn", expected a function'],
  [() => createLocalHost(null as never), "createLocalHost: invalid `options`: got null, expected an object"],
  [start({ cwd: undefined }), "start: missing `cwd`; expected an absolute path or a file: URI"],
  [start({ argv: "true" }), /^start: invalid `argv`: got "true", expected an array of strings/],
  [start({ name: 5, ttyy: true }), /^start: (unknown option|invalid) /],
  [start({ tty: 1 }), "start: invalid `tty`: got 1, expected true or false"],
  [start({ limits: { memory: 5 } }), "start: unknown option `limits.memory`; did you mean `memoryBytes`?"],
  [(e) => e.getExecBackend().start(undefined), "start: missing `params`; expected an object"],
  [(e) => e.info({ sginal: null }), "info: unknown option `sginal`; did you mean `signal`?"],
  [
    onProcess((p) => p.write(5)),
    "write: invalid `data`: got 5, expected a string, a typed array, a DataView or an ArrayBuffer",
  ],
  [onProcess((p) => p.write({})), /^write: invalid `data`: got an object, expected /],
  [onProcess((p) => p.write(["x"])), /^write: invalid `data`: got an array, expected /],
  [onProcess((p) => p.write(undefined)), /^write: missing `data`; expected /],
  [onProcess((p) => p.write("x", { id: "1" })), /^write: unknown option `id`; /],
  [onProcess((p) => p.resize({ rows: 1 })), /^resize: missing `size.cols`; /],
  [onProcess((p) => p.signal(9)), "signal: invalid `name`: got 9, expected a signal name such as SIGTERM"],
  [onProcess((p) => p.kill(9)), "kill: invalid `signal`: got 9, expected a signal name such as SIGTERM"],
  [
    onProcess((p) => p.kill("sigterm")),
    'kill: invalid `signal`: got "sigterm", expected a signal name such as SIGTERM',
  ],
  [onProcess((p) => p.signal("")), 'signal: invalid `name`: got "", expected a signal name such as SIGTERM'],
  [
    onProcess((p) => p.terminate("force")),
    /^terminate: invalid `mode`: got "force", expected an object with type "force" or/,
  ],
  [onProcess((p) => p.terminate({ type: "graceful" })), /^terminate: missing `mode.timeoutMs`; /],
  [onProcess((p) => p.wait({ until: { type: "output" } })), /^wait: missing `until.pattern`; expected a string/],
  [onProcess((p) => p.wait({ timeout: 5 })), "wait: unknown option `timeout`; did you mean `timeoutMs`?"],
  [onProcess((p) => p.read({ after: 5 })), "read: unknown option `after`; did you mean `afterSeq`?"],
  [onProcess((p) => p.events({ losless: true })), "events: unknown option `losless`; did you mean `lossless`?"],
  [onProcess((p) => p.waitFor(5)), "waitFor: invalid `pattern`: got 5, expected a regular expression or a string"],
  [
    onProcess((p) => waitFor(p, "x", { timeout: 5 } as never)),
    /^waitFor: unknown option `timeout`; did you mean `timeoutMs`\?$/,
  ],
  [onProcess((p) => lines(p, { gap: "yield" } as never).next()), "lines: unknown option `gap`; did you mean `onGap`?"],
  [onProcess((p) => communicate(p, 5 as never)), /^communicate: invalid `input`: got 5, expected a string, /],
  [
    onProcess((p) => communicate(p, "", { max: 5 } as never)),
    "communicate: unknown option `max`; did you mean `maxBytes`?",
  ],
  [onProcess((p) => p.pipe(5)), /^pipe: invalid `target`: got 5, expected a Node stream, a web stream or a process$/],
  [(e) => e.files.readText(5), /^readFile: invalid `path`: got 5, expected an absolute path or a file: URI$/],
  [(e) => e.files.readText("/a\0b"), /^readFile: invalid `path`: got "\/a\\u0000b", expected an absolute path or /],
  [
    (e) => e.files.readText(new URL("file:///etc/hostname")),
    "readFile: invalid `path`: got a URL object (pass its `href`), expected an absolute path or a file: URI",
  ],
  [(e) => e.files.writeFile("/tmp/x", 5), /^writeFile: invalid `data`: got 5, expected a string, a typed array/],
  [(e) => e.files.remove("/tmp/x", { recusive: true }), "remove: unknown option `recusive`; did you mean `recursive`?"],
  [(e) => e.files.copy("/etc/hostname", 5), "copy: invalid `to`: got 5, expected an absolute path or a file: URI"],
  [(e) => e.files.open("/etc/hostname", "r"), 'open: invalid `mode`: got "r", expected "read" or "replace"'],
  [
    (e) => e.files.waitForPath([]),
    "waitForPath: invalid `paths`: got an array, expected a path or a non-empty array of paths",
  ],
  [(e) => e.files.setAttributes("/tmp/x"), "setAttributes: missing `options`; expected an object"],
  [onFile((f) => f.read("0", 5)), 'read: invalid `offset`: got "0", expected a non-negative integer'],
  [onFile((f) => f.read(0)), "read: missing `length`; expected a non-negative integer"],
  [onFile((f) => f.write("0", "x")), 'write: invalid `offset`: got "0", expected a non-negative integer'],
  [onFile((f) => f.checksum(-1)), "checksum: invalid `length`: got -1, expected a non-negative integer"],
  [onFile((f) => f.read(0, 5, null)), "read: invalid `options`: got null, expected an object"],
  [(e) => e.http.request({ uri: "http://x/" }), "request: unknown option `uri`; did you mean `url`?"],
  [(e) => e.http.request({ url: "http://x/", body: 5 }), /^request: invalid `body`: got 5, expected a string, /],
  [(e) => e.http.request({}), "request: missing `url`; expected a string"],
  [
    (e) => copyFiles({ files: e.files } as never, { files: e.files, path: "/tmp/x" }),
    /^copyFiles: missing `from.path`; /,
  ],
  [
    (e) => copyFiles({ files: e.files, path: "/tmp" }, { files: e.files, path: "/x" }, { link: "keep" } as never),
    "copyFiles: unknown option `link`; did you mean `links`?",
  ],
];

describe("options that a JavaScript caller gets wrong", { timeout: 600_000 }, () => {
  let server: ServeChild;
  let environments: { local: Environment; remote: Environment };
  before(async () => {
    server = await serve();
    environments = { local: await Environment.create(null), remote: await Environment.create(server.url) };
  });
  after(async () => {
    await environments.local.close();
    await environments.remote.close();
    await server.stop();
  });

  test("are rejected with EINVAL and the same message by a local and a remote environment", async () => {
    for (const [call, message] of REJECTED) {
      const [local, remote] = [await rejection(call, environments.local), await rejection(call, environments.remote)];
      assert.equal(local, remote);
      if (typeof message === "string") assert.equal(local, message);
      else assert.match(local, message);
    }
  });

  test("are rejected before a connection is opened", async () => {
    const create: Untyped = Environment.create;
    const expected = [
      [create(5), "Environment.create: invalid `target`: got 5, expected null, a URL, { url } or { program, args }"],
      [create({ adress: "ws://x" }), /^Environment.create: invalid `target`: got an object, expected null, a URL, /],
      [
        create({ url: server.url, authToken: "x" }),
        "Environment.create: unknown option `target.authToken`; expected one of `url`",
      ],
      [create(new URL(server.url)), /^Environment.create: invalid `target`: got a URL object \(pass its `href`\), /],
      [
        create({ program: "" }),
        'Environment.create: invalid `target.program`: got "", expected a program name or path',
      ],
      [create({ program: "a\0" }), /^Environment.create: invalid `target.program`: got "a\\u0000", expected /],
      [
        create({ program: "sh", args: ["\0"] }),
        'Environment.create: invalid `target.args.0`: got "\\u0000", expected a string without NUL bytes',
      ],
      [create({ program: "sh", arg: [] }), "Environment.create: unknown option `target.arg`; did you mean `args`?"],
      [create(server.url, { token: "x" }), "Environment.create: unknown option `token`; did you mean `authToken`?"],
      [
        create(server.url, { authToken: 5 }),
        "Environment.create: invalid `authToken`: got a number, expected a string or a function",
      ],
      [
        create(server.url, { authToken: async () => "secret" }),
        "connect: invalid `authToken`: got an instance of Promise, expected a string",
      ],
      [create(null, { reconect: false }), "Environment.create: unknown option `reconect`; did you mean `reconnect`?"],
      [
        create(server.url, { reconnect: { deadline: 5 } }),
        /^Environment.create: unknown option `reconnect.deadline`; did you mean `deadlineMs`/,
      ],
      [
        create(server.url, { reconnect: "no" }),
        /^Environment.create: invalid `reconnect`: got "no", expected true, false or an object/,
      ],
    ] as const;
    for (const [created, message] of expected) await assert.rejects(created, { code: "EINVAL", message });
  });

  test("reach a process as the same bytes in every form that write accepts", async () => {
    const words = new Uint16Array([0x6261, 0x6463]);
    const shared = new Uint8Array(new SharedArrayBuffer(2));
    shared.set([0x65, 0x66]);
    const forms = ["ä", words, new DataView(words.buffer, 1, 2), words.buffer, shared, shared.buffer, Buffer.from("g")];
    for (const environment of [environments.local, environments.remote]) {
      await using process = await environment.spawn("cat");
      for (const data of forms) assert.deepEqual(await process.write(data), { status: "accepted" });
      const { stdout } = await communicate(process, new Uint8Array([0x0a]).buffer);
      assert.equal(stdout, "äabcdbcabcdefefg\n");
      assert.equal((await environment.run("cat", { input: words })).stdout, "abcd");
    }
  });
});

/** Returns the message of the EINVAL error that a call rejects with. */
async function rejection(call: UntypedCall, environment: Environment): Promise<string> {
  try {
    await call(environment);
  } catch (error) {
    assert.ok(error instanceof ExecServerError, `${call} failed with ${error}`);
    assert.equal(error.code, "EINVAL", error.message);
    return error.message;
  }
  return assert.fail(`${call} was accepted`);
}
