/**
 * Sends raw bytes over TCP to real servers and compares their responses. The addon's sockets must respond to frames
 * exactly as Node's sockets do; node:http must accept every request head that they accept; a token is accepted only
 * if it is valid.
 *
 *   npm run fuzz -- [--seconds 30] [--seed N] [--asan]
 *
 * `--asan` runs the addon built with AddressSanitizer and UndefinedBehaviorSanitizer. A failure prints the minimized
 * input and the seed that reproduces it.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { existsSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import fc from "fast-check";
import { HOSTILE_HEADS, hostileFrames } from "../../test/support/faults/hostile-frames.ts";
import { hostileHead, NodeReader } from "../../test/support/faults/hostile-heads.ts";
import { cut, RawWebSocket } from "../../test/support/faults/raw-frames.ts";
import { ServeChild, scratchDirectory } from "../../test/support/servers/serve.ts";

const root = join(import.meta.dirname, "../..");
const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "30" },
    seed: { type: "string" },
    asan: { type: "boolean", default: false },
  },
});
const seed = values.seed === undefined ? Date.now() % 0x7fffffff : Number(values.seed);
/** Shares of the time for frames, heads and tokens. */
const SHARE = { frames: 0.6, heads: 0.25, tokens: 0.15 };
const HANG_TIMEOUT_MS = 15_000;
const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;
const SECRET = "a secret of at least thirty-two bytes";

const nativeEnv = values.asan ? buildSanitized() : {};
const nodeEnv = { PROCWIRE_NATIVE_SPAWNER: "/nowhere" };

using scratch = scratchDirectory();
const secretFile = join(scratch.path, "secret");
writeFileSync(secretFile, SECRET);

await using nativeEcho = await echo(nativeEnv);
await using nodeEcho = await echo({}, "--node");
await using nativeServer = await serve(nativeEnv);
await using nodeServer = await serve(nodeEnv);
const auth = ["--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secretFile];
await using authServer = await serve(nativeEnv, ...auth);
const all = { nativeEcho, nodeEcho, nativeServer, nodeServer, authServer };
// A server that hangs handles no other signal.
process.on("exit", () => {
  for (const { child } of Object.values(all)) child.kill("SIGKILL");
});

console.log(`seed ${seed}, ${values.seconds} s${values.asan ? ", under sanitizers" : ""}`);
await frames();
await heads();
await tokens();
for (const [name, server] of Object.entries(all)) {
  assert.equal(server.child.exitCode, null, `${name} ended: ${server.stderr}`);
  assert.doesNotMatch(server.stderr, /Sanitizer|runtime error:|Error:/, name);
  // The time may have run out while a server hung.
  const hangTimer = setTimeout(() => assert.fail(`${name} hangs`), HANG_TIMEOUT_MS);
  assert.notEqual(await status(server, Buffer.from("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")), 0, name);
  clearTimeout(hangTimer);
}
console.log("all servers still serve");

/**
 * Compares the whole response of the echo servers, which respond before the end of the stream. Of the real servers, it
 * compares only the immediate response.
 */
async function frames(): Promise<void> {
  const property = fc.asyncProperty(
    hostileFrames,
    fc.array(fc.nat(), { maxLength: 12 }),
    fc.nat(60),
    async (bytes, cuts, headBytes) => {
      const parts = cut(bytes.subarray(headBytes), cuts);
      const responsesOf = (server: ServeChild) => exchange(server, bytes.subarray(0, headBytes), parts);
      const [native, node] = await Promise.all([responsesOf(nativeEcho), responsesOf(nodeEcho)]);
      assert.deepEqual(native, node);
      const immediate = (responses: string[]) => responses.filter((response) => /^(pong|close)/.test(response));
      const served = await Promise.all([responsesOf(nativeServer), responsesOf(nodeServer)]);
      assert.deepEqual(served.map(immediate), [immediate(native), immediate(native)]);
    },
  );
  await run(
    "frames",
    property,
    HOSTILE_HEADS.map((head) => [head, [], 0]),
  );
}

async function exchange(server: ServeChild, head: Buffer, parts: Buffer[]): Promise<string[]> {
  const client = await RawWebSocket.open(serverPort(server), head);
  for (const part of parts) {
    client.send(part);
    await new Promise((resolve) => setImmediate(resolve));
  }
  return client.finish();
}

async function heads(): Promise<void> {
  const node = await new NodeReader().listen();
  const property = fc.asyncProperty(hostileHead, async (head) => {
    const text = head.toString("latin1");
    const [native, fallBack] = await Promise.all([status(nativeServer, head), status(nodeServer, head)]);
    assert.equal(native, fallBack);
    const isRejected = [0, 400, 408, 431, 505].includes(native);
    // The parser does not require a host header; the gateway handles other methods and targets.
    if (isRejected || !/^(GET|HEAD|POST|OPTIONS) \/.*\r\nhost:/is.test(text)) return;
    assert.ok(await node.read(head), `answered ${native}, but node:http refuses ${JSON.stringify(text)}`);
  });
  await run("heads", property);
  node.close();
}

/** Resolves to the status of the response, or to 0 without one. */
function status(server: ServeChild, head: Buffer, { staysOpen = false } = {}): Promise<number> {
  return new Promise((resolve) => {
    const socket = connect(serverPort(server), "127.0.0.1");
    let text = "";
    socket.on("error", () => undefined);
    socket.on("data", (data) => {
      text += data.toString("latin1");
    });
    socket.on("close", () => resolve(Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0)));
    if (!staysOpen) {
      socket.end(head);
      return;
    }
    // A peer that disconnects before its token is checked is rejected.
    socket.on("data", () => {
      if (text.includes("\r\n\r\n")) socket.destroy();
    });
    socket.write(head);
  });
}

async function tokens(): Promise<void> {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const soon = Math.floor(Date.now() / 1000) + 86_400;
  const token = fc.record({
    alg: fc.constantFrom("HS256", "HS256", "none", "HS512", "hs256", null),
    exp: fc.constantFrom<unknown>(soon, soon, 0, -1, "soon", null, String(soon)),
    secret: fc.constantFrom(SECRET, SECRET, "", "another"),
    // Position at which the signed text is changed afterwards, or null.
    changed: fc.oneof(fc.constant(null), fc.nat()),
    tail: fc.constantFrom("", "", ".", ".x", "=", " ", "\x80"),
    scheme: fc.constantFrom("Bearer ", "bearer   ", "Basic ", "Bearer", ""),
  });
  const property = fc.asyncProperty(token, async ({ alg, exp, secret, changed, tail, scheme }) => {
    const signed = `${part({ alg })}.${part({ exp })}`;
    const signature = createHmac("sha256", secret).update(signed).digest("base64url");
    const at = changed === null ? -1 : changed % signed.length;
    const other = signed[at] === "A" ? "B" : "A";
    const sent = at < 0 ? signed : signed.slice(0, at) + other + signed.slice(at + 1);
    const head = `GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\nauthorization: ${scheme}${sent}.${signature}${tail}\r\n\r\n`;
    const isValid =
      alg === "HS256" && exp === soon && secret === SECRET && changed === null && /^bearer +$/i.test(scheme);
    const got = await status(authServer, Buffer.from(head, "latin1"), { staysOpen: true });
    // Padding and blanks after a signature do not change it. The server may accept or reject other text there.
    if (!isValid) assert.equal(got, 401);
    else if (tail === "") assert.equal(got, 101);
    else assert.ok(got === 101 || got === 401, `status ${got}`);
  });
  await run("tokens", property);
}

/** Checks the property, starting with the examples. */
async function run<T>(kind: keyof typeof SHARE, property: fc.IAsyncProperty<T>, examples: T[] = []): Promise<void> {
  const result = await fc.check(property, {
    seed,
    examples,
    // A hanging server also counts as a difference.
    timeout: HANG_TIMEOUT_MS,
    numRuns: Number.MAX_SAFE_INTEGER,
    interruptAfterTimeLimit: Number(values.seconds) * 1000 * SHARE[kind],
  });
  if (result.counterexample !== null) assert.fail(`${kind}: ${fc.defaultReportMessage(result)}`);
  assert.ok(result.numRuns > 0, `${kind}: no run`);
  console.log(`${kind}: ${result.numRuns} runs, no difference`);
}

function serverPort(server: ServeChild): number {
  return Number(new URL(server.url).port);
}

async function echo(env: Record<string, string>, ...args: string[]): Promise<ServeChild> {
  const program = join(root, "test", "support", "servers", "echo-server.ts");
  return new ServeChild(["--max-message-bytes", String(MAX_MESSAGE_BYTES), ...args], {
    command: [process.execPath, program],
    env,
  }).listening();
}

/** Starts Node without the launcher and the watchdog, because the preload applies to Node alone. */
function serve(env: Record<string, string>, ...args: string[]): Promise<ServeChild> {
  const listen = ["--listen", "ws://127.0.0.1:0", "--max-message-bytes", String(MAX_MESSAGE_BYTES)];
  return new ServeChild([...listen, ...args], {
    command: [process.execPath, join(root, "bin", "main.cjs"), "src/cli/procwire.ts", "serve"],
    env,
  }).listening();
}

function buildSanitized(): Record<string, string> {
  execFileSync(process.execPath, [join(root, "native", "build.mjs"), "--asan"], { stdio: "inherit" });
  const cxx = process.env.CXX ?? "c++";
  const library = execFileSync(cxx, ["-print-file-name=libasan.so"], { encoding: "utf8" }).trim();
  assert.ok(existsSync(library), `${cxx} has no libasan; install it, or fuzz without --asan`);
  return {
    LD_PRELOAD: library,
    // Node does not free all memory at exit; only use after free and out-of-bounds accesses matter here.
    ASAN_OPTIONS: "detect_leaks=0",
    UBSAN_OPTIONS: "print_stacktrace=1",
    PROCWIRE_NATIVE_SPAWNER: join(root, "native", "build", "asan", "procwire.node"),
  };
}
