import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ExecServerClient } from "../../src/client/node/socket-client.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../support/serve.ts";

const TIMEOUT = { timeout: 120_000 };
const YAML = readFileSync(new URL("../../examples/kubernetes/sidecar.yaml", import.meta.url), "utf8");

/** Every value of a member, as it is written. */
function valuesOf(name: string): string[] {
  return [...YAML.matchAll(new RegExp(`^[ -]*${name}: (.+)$`, "gm"))].map(([, value = ""]) => value);
}

describe("the example of a sidecar", TIMEOUT, () => {
  // A list as JSON has it, but for a comma at its end.
  const [, list = ""] = /^ *args:\s*\[([^\]]*?),?\s*\]/m.exec(YAML) ?? [];
  const args: string[] = JSON.parse(`[${list}]`);
  const given = (flag: string) => args[args.indexOf(flag) + 1] ?? "";

  it("names one port everywhere", () => {
    const listens = new URL(given("--listen")).port;
    const [connects = ""] = valuesOf("value");
    assert.deepEqual([...valuesOf("containerPort"), ...valuesOf("port")], [listens, listens, listens]);
    assert.equal(new URL(connects).port, listens);
  });

  it("mounts the token where the server reads it", () => {
    const [folder, file] = /^(.*)\/([^/]*)$/.exec(given("--ws-token-file"))?.slice(1) ?? [];
    assert.ok(folder !== undefined && valuesOf("mountPath").includes(folder));
    assert.deepEqual(valuesOf("key"), [file]);
    assert.match(
      YAML,
      new RegExp(`create secret generic ${valuesOf("secretName")[0]} --from-literal=${file}=`),
    );
  });

  it("starts a real server with its flags, which answers its probes without the token and a client with it", async () => {
    using scratch = scratchDirectory();
    const token = "0123456789abcdef0123456789abcdef0123";
    const tokenFile = join(scratch.path, "token");
    writeFileSync(tokenFile, `${token}\n`, { mode: 0o440 });
    // The same but for a port that is free, on loopback, and a file that is here.
    const here: Record<string, string> = {
      [given("--listen")]: "ws://127.0.0.1:0",
      [given("--ws-token-file")]: tokenFile,
    };
    const [program, ...words] = [PROCWIRE, ...args.map((word) => here[word] ?? word)];
    await using server = await new ServeChild(words, { command: [program] }).listening();
    const probes = valuesOf("path");
    assert.equal(probes.length, 2);
    for (const path of probes) {
      const { status } = await fetch(server.url.replace("ws:", "http:").replace(/\/?$/, path));
      assert.equal(status, 200, path);
    }
    await assert.rejects(ExecServerClient.connectWebSocket({ url: server.url }), { code: "REFUSED" });
    await using client = await ExecServerClient.connectWebSocket({ url: server.url, authToken: token });
    assert.ok((await client.info()).shell.path);
  });
});
