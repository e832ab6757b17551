import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { sh } from "../../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const index = fileURLToPath(new URL("../../../src/index.ts", import.meta.url));
const program = (code: string): [string, ...string[]] => [
  process.execPath,
  "--input-type=module",
  "--eval",
  `import { DEFAULT_LISTEN_URL, ExecServerTransport, ExecServerTransportParseError, runMain, runMainWithTransport } from ${JSON.stringify(index)};\n${code}`,
];

describe("a program that serves using the library", () => {
  test("runMain serves on stdio until stdin ends", async () => {
    await using child = new ServeChild([], { stdin: "pipe", command: program("await runMain();") });
    const client = child.overStdio();
    await client.handshake();
    await client.start("p", sh("echo hi"));
    assert.equal((await client.finished("p")).output, "hi\n");
    child.child.stdin?.end();
    assert.deepEqual(await child.exited, { code: 0, signal: null });
  });

  test("runMainWithTransport serves on the listen URL", async () => {
    const code = `await runMainWithTransport(ExecServerTransport.fromListenUrl("ws://127.0.0.1:0"));`;
    await using child = await new ServeChild([], { command: program(code) }).listening();
    assert.ok(child.stderr.split("\n")[0]?.split(" ").includes(child.url));
    const client = await child.connect();
    await client.handshake();
    assert.deepEqual(await child.stop(), { code: 0, signal: null });
  });

  test("rejects an unusable listen URL with a specific error", async () => {
    const code = `
      try { ExecServerTransport.fromListenUrl("http://x"); } catch (error) {
        console.log(error instanceof ExecServerTransportParseError, error.kind, DEFAULT_LISTEN_URL);
      }`;
    const child = new ServeChild([], { command: program(code) });
    let stdout = "";
    child.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    assert.equal((await child.exited).code, 0, child.stderr);
    assert.equal(stdout, "true unsupported stdio://\n");
  });
});

describe("procwire start", () => {
  test("serves on port 7070 or the next free port, and prints example commands", async () => {
    await using first = await new ServeChild([], { command: [PROCWIRE, "start"] }).listening();
    await using second = await new ServeChild([], { command: [PROCWIRE, "start"] }).listening();
    const port = ({ url }: ServeChild) => Number(new URL(url).port);
    assert.ok(port(first) >= 7070 && port(second) > port(first) && port(second) < 7170);
    await until("the example commands on stderr", () => second.stderr.includes(`--connect ${second.url}`));
    const client = await second.connect();
    await client.handshake();
    assert.deepEqual(await second.stop("SIGINT"), { code: 0, signal: null });
  });
});
