import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { runInNamespace } from "../test/support/network/run-in-namespace.ts";
import { PROCWIRE } from "../test/support/servers/serve.ts";

const CODEX = fileURLToPath(new URL("node_modules/.bin/codex", import.meta.url));
const skip = existsSync(CODEX) ? false : "THE REAL EXEC-SERVER IS NOT TESTED: run `npm install --prefix interop` first";

/** The same requests to the network proxies of both servers, with this client. */
describe("network proxies", { skip, timeout: 600_000 }, () => {
  test("respond, decide, ask, look up names and use upstream proxies as the real exec-server", async () => {
    const codex = await runInNamespace([CODEX, "exec-server", "--listen", "ws://127.0.0.1:0"]);
    const procwire = await runInNamespace([PROCWIRE, "serve", "--listen", "ws://127.0.0.1:0"]);
    assert.deepEqual(procwire, codex);
    const { kept, resumed, upstream } = codex;
    assert.equal(Object.keys(kept).length, 5);
    assert.equal(Object(resumed.responses["open question"]).status, "HTTP/1.1 403 Forbidden");
    assert.equal(Object(resumed.responses["after the resume"]).status, "HTTP/1.1 200 OK");
    assert.equal(upstream["private addresses too, true"]?.requests.length, 6);
    assert.deepEqual(upstream["ALL_PROXY with SOCKS5, true"]?.requests, []);
  });
});
