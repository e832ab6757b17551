import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { policy } from "../support/network/network-config.ts";
import { runInNamespace } from "../support/network/run-in-namespace.ts";
import { noTestNetwork as skip, TestNetwork } from "../support/network/test-network.ts";
import { sh } from "../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

const MANY = fileURLToPath(new URL("../support/network/many-requests.mjs", import.meta.url));
const GOOD = "93.184.216.34";
const NETWORK = { names: { "good.test": [[GOOD]], "silent.test": [] }, servers: [{ address: GOOD, port: 80 }] };

/** A server in a test network, and a client of it. */
async function serveIn(network: TestNetwork, directory: string) {
  const server = new ServeChild(["--listen", `unix://${join(directory, "socket")}`], {
    command: ["env", ...network.command, PROCWIRE, "serve"],
  });
  await server.listening();
  const client = await server.connect();
  await client.handshake();
  return {
    client,
    async [Symbol.asyncDispose]() {
      await client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

describe("network proxy in a network namespace", { skip, timeout: 300_000 }, () => {
  test("allows, blocks and asks by policy, and looks up allowed names only", async () => {
    const result = await runInNamespace([PROCWIRE, "serve", "--listen", "ws://127.0.0.1:0"]);
    const status = (name: string) => Object(result.responses[name]).status;
    for (const name of ["allowed", "address, allowed", "private address, allowed", "origin form"])
      assert.equal(status(name), "HTTP/1.1 200 OK", name);
    for (const name of ["denied", "not allowed", "loopback address", "localhost", "unknown name"])
      assert.equal(status(name), "HTTP/1.1 403 Forbidden", name);
    for (const name of ["name with a private address", "name with a public and a private address"])
      assert.match(Object(result.responses[name]).content, /"reason":"not_allowed_local"/);
    assert.equal(status("refused by the destination"), "HTTP/1.1 502 Bad Gateway");
    assert.equal(result.responses["SOCKS5 private"], "050005020001000000000000");
    assert.equal(Object(result.asked["asked, allowed"]).status, "HTTP/1.1 200 OK");
    assert.match(Object(result.asked["asked, denied"]).content, /"reason":"no","decision":"deny","source":"decider"/);
    assert.deepEqual(result.names, [
      ...["deep.www.good.test", "good.test", "loop.test", "mixed.test", "nxdomain.test", "other.test", "priv.test"],
      "www.good.test",
    ]);
  });

  test("serves 1,000 connections of a process at once", async () => {
    using scratch = scratchDirectory();
    await using network = await TestNetwork.open(NETWORK);
    await using served = await serveIn(network, scratch.path);
    const { client } = served;
    const networkProxy = { proxy: policy({ domains: { "good.test": "allow" } }) };
    await client.start("p", [process.execPath, MANY], { networkProxy, pipeStdin: true, env: process.env });
    await client.write("p", "1000 http://good.test/\n");
    await client.outputContains("p", "done ");
    assert.equal(client.output("p"), 'done {"200":1000}\n');
    assert.equal(network.requests.length, 1000);
  });

  for (const allowLocalBinding of [false, true])
    test(`closes a process whose lookup is pending, with allowLocalBinding ${allowLocalBinding}`, async () => {
      using scratch = scratchDirectory();
      await using network = await TestNetwork.open(NETWORK);
      await using served = await serveIn(network, scratch.path);
      const { client } = served;
      const networkProxy = { proxy: policy({ allowLocalBinding, domains: { "silent.test": "allow" } }) };
      await client.start("p", sh("curl -s http://silent.test/; sleep 1000"), { networkProxy, env: process.env });
      await until("the lookup", () => network.queries.includes("A silent.test"));
      await client.call("process/terminate", { processId: "p" });
      await client.notification("process/closed", "p");
      // A lookup without an answer blocks the request. With allowLocalBinding the decision precedes the lookup.
      const decisions = client.messages.filter(({ method }) => method === "network/policyDecision");
      assert.deepEqual(
        decisions.map(({ params }) => params?.decision),
        allowLocalBinding ? ["allow"] : [],
      );
    });

  test("closes a process whose connection attempt has no response", async () => {
    using scratch = scratchDirectory();
    await using network = await TestNetwork.open(NETWORK);
    const inNetwork = (...argv: string[]) => {
      const [program = "", ...args] = [...network.command, ...argv];
      return execFileSync(program, args, { encoding: "utf8" });
    };
    // The loopback device drops packets for an address that no interface has.
    inNetwork("ip", "route", "add", "93.184.217.9/32", "dev", "lo");
    const attempts = () => inNetwork("cat", "/proc/net/tcp").match(/ 09D9B85D:0050 02 /g)?.length ?? 0;
    await using served = await serveIn(network, scratch.path);
    const { client } = served;
    const networkProxy = { proxy: policy({ domains: { "93.184.217.9": "allow" } }) };
    await client.start("p", sh("curl -s http://93.184.217.9/; sleep 1000"), { networkProxy, env: process.env });
    await until("the attempt", () => attempts() === 1);
    await client.call("process/terminate", { processId: "p" });
    // The proxy itself would end the attempt after 30 s.
    const late = delay(20_000, "late", { ref: false });
    assert.notEqual(await Promise.race([client.notification("process/closed", "p"), late]), "late");
    await until("its end", () => attempts() === 0);
  });
});
