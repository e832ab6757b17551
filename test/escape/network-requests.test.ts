/** Requests of sandboxed commands that try to reach a host which their network policy does not allow. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { NetworkPolicy } from "../../src/protocol/network/network-schemas.ts";
import { policy } from "../support/network/network-config.ts";
import { connect, http, type NetworkStep, socks } from "../support/network/network-steps.ts";
import { noTestNetwork, TestNetwork } from "../support/network/test-network.ts";
import { USERS } from "../support/system/users.ts";
import { Fixture, intent, READ_ROOT, skipFor } from "./inside.ts";

const SLOW_HEADS = fileURLToPath(new URL("../support/network/slow-heads.mjs", import.meta.url));
const PROBE = fileURLToPath(new URL("../support/network/proxy-probe.mjs", import.meta.url));
const [GOOD, OTHER, PRIVATE] = ["93.184.216.34", "93.184.216.35", "10.1.2.3"];
const REBOUND = [[GOOD], ["127.0.0.1"]];
const REDIRECTS = {
  ...{ "/private": `http://${PRIVATE}/`, "/loopback": "http://127.0.0.1/", "/metadata": "http://169.254.169.254/" },
  ...{ "/denied": "http://bad.test/", "/other": "http://other.test/", "/https": "https://other.test/" },
  ...{ "/named": "http://private.test/", "/decimal": "http://2130706433/", "/good": "http://good.test/end" },
};
const NETWORK = {
  names: {
    ...{ "good.test": [[GOOD]], "bad.test": [[OTHER]], "other.test": [[OTHER]], "private.test": [[PRIVATE]] },
    ...{ "rebound-http.test": REBOUND, "rebound-connect.test": REBOUND, "rebound-socks.test": REBOUND },
    ...{ "mapped.test": [["::ffff:7f00:1"]], "loopback6.test": [["::1"]], "nat64.test": [["64:ff9b::a01:203"]] },
    ...{ "local6.test": [[GOOD, "fd00::1"]], "metadata.test": [["169.254.169.254"]] },
  },
  servers: [
    { address: GOOD, port: 80, redirects: REDIRECTS },
    ...[GOOD, OTHER].map((address) => ({ address, port: 25 })),
    ...[OTHER, PRIVATE, "127.0.0.1"].map((address) => ({ address, port: 80 })),
  ],
};
const ALLOW_GOOD: Partial<NetworkPolicy> = { domains: { "good.test": "allow" } };
/** All public hosts except one. */
const DENY_BAD: Partial<NetworkPolicy> = { domains: { "*": "allow", "bad.test": "deny" } };

interface Attacked {
  fixture: Fixture;
  network: TestNetwork;
  /** Runs a script in the sandbox. */
  run(changes: Partial<NetworkPolicy>, script: string): Promise<string>;
  /** Sends requests from the sandbox. Returns the responses by the name of their step. */
  send(changes: Partial<NetworkPolicy>, steps: readonly NetworkStep[]): Promise<Record<string, string>>;
}

/** The fields of a start in a sandbox with this policy. */
const sandboxedBy = (changes: Partial<NetworkPolicy>) => ({
  ...{ enforceManagedNetwork: true, networkProxy: { proxy: policy(changes) } },
  sandbox: intent([READ_ROOT], { network: "enabled" }),
});

function testRequests(title: string, body: (attacked: Attacked) => Promise<void>): void {
  for (const user of USERS)
    test(`${title}, as ${user.name}`, { skip: noTestNetwork || skipFor(user) }, async () => {
      await using network = await TestNetwork.open(NETWORK);
      await using fixture = await Fixture.prepare(user, { listen: "unix", under: network.command });
      const start = async (changes: Partial<NetworkPolicy>, argv: string[]) => {
        const { sandbox, ...managed } = sandboxedBy(changes);
        return (await fixture.run(sandbox, argv, managed)).output;
      };
      await body({
        fixture,
        network,
        run: (changes, script) => start(changes, ["/bin/bash", "-c", script]),
        send: async (changes, steps) =>
          JSON.parse(await start(changes, [process.execPath, PROBE, JSON.stringify(steps)])),
      });
    });
}

/** Asserts that only the public address of `good.test` received requests, with these paths. */
function assertReached({ requests }: TestNetwork, paths: readonly string[]): void {
  const expected = paths.map((path) => `${GOOD}:80 ${path} good.test`);
  assert.deepEqual(requests, expected);
  requests.length = 0;
}

testRequests("a redirect of an allowed host leads to no other host", async ({ network, run }) => {
  const paths = Object.keys(REDIRECTS).filter((path) => path !== "/good");
  const curl = "curl -sL -m 60 -o /dev/null -w '%{http_code} %{num_redirects}\\n'";
  const script = [...paths, "/good"].map((path) => `${curl} http://good.test${path}`).join("\n");
  const output = await run({ domains: { "good.test": "allow", "bad.test": "deny", "private.test": "allow" } }, script);
  const results = output.trim().split("\n");
  assert.deepEqual(results.splice(-1), ["200 1"]);
  for (const [index, result] of results.entries())
    assert.match(result, paths[index] === "/https" ? /^000 1$|^403 1$/ : /^403 1$/, paths[index]);
  assertReached(network, [...paths.map((path) => `GET ${path}`), "GET /good", "GET /end"]);
});

testRequests("a name reaches only the addresses that the proxy checked", async ({ network, send }) => {
  const rebound = ["http", "connect", "socks"].map((way) => `rebound-${way}.test`);
  const [first = "", second = "", third = ""] = rebound;
  const get = (name: string) => `GET / HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`;
  const steps = (): NetworkStep[] =>
    [
      http(first, `http://${first}/`),
      { ...connect(`${second}:80`), name: second, sent: `CONNECT ${second}:80 HTTP/1.1\r\n\r\n${get(second)}` },
      { ...socks(third, third, 80, { sent: get(third) }), until: "from .*\n$|^\x05\x00\x05\x02.{8}$" },
    ].map((step) => (step.listener === "http" ? { ...step, until: undefined } : step));
  const allowed = { domains: Object.fromEntries(rebound.map((name) => [name, "allow" as const])) };
  const responses = await send(allowed, steps());
  for (const name of rebound) {
    assert.match(responses[name] ?? "", new RegExp(`from ${GOOD}:80\\b`), name);
    assert.equal(network.queries.filter((query) => query === `A ${name}`).length, 1, name);
  }
  // The second lookup returns the loopback address.
  const blocked = await send(allowed, steps());
  for (const name of rebound) assert.doesNotMatch(blocked[name] ?? "", /from /, name);
  assert.deepEqual(
    network.requests,
    rebound.map((name) => `${GOOD}:80 GET / ${name}`),
  );
  network.requests.length = 0;
  const local = ["mapped.test", "loopback6.test", "nat64.test", "local6.test", "metadata.test", "private.test"];
  const names = { domains: { "*": "allow" } } as const;
  for (const response of Object.values(
    await send(
      names,
      local.map((name) => http(name, `http://${name}/`)),
    ),
  ))
    assert.match(response, /^HTTP\/1\.1 403 .*"reason":"not_allowed_local"/s);
  assert.deepEqual(network.requests, []);
});

testRequests("a Host header or an unusual URL names no other host", async ({ network, send }) => {
  const origin = (name: string, host: string): NetworkStep => http(name, "/x", { headers: `Host: ${host}\r\n` });
  const absolute = (url: string, host?: string): NetworkStep =>
    http(`${url} ${host}`, url, { headers: host === undefined ? "" : `Host: ${host}\r\n` });
  const allowed = [
    ...["GOOD.TEST", "good.test.", "good.test:80", " good.test "].map((host) => origin(host, host)),
    absolute("HTTP://GOOD.test/x", "good.test:80"),
    absolute("http://GOOD.test./x"),
    http("path with a host", "//other.test/x", { headers: "Host: good.test\r\n" }),
  ];
  for (const [name, response] of Object.entries(await send(ALLOW_GOOD, allowed)))
    assert.match(response, /^HTTP\/1\.1 200 /, name);
  // The header reaches the destination in the spelling of the client, as with Codex.
  const hosts = ["GOOD.TEST", "good.test.", "good.test:80", "good.test", "good.test:80", "GOOD.test."];
  assert.deepEqual(network.requests.splice(0), [
    ...hosts.map((host) => `${GOOD}:80 GET /x ${host}`),
    `${GOOD}:80 GET //other.test/x good.test`,
  ]);

  const rejected = [
    ...["other.test", "good.test.", "good.test:81", "good.test@other.test", "[::1]:80", "good.test\t,other.test"].map(
      (host) => absolute("http://good.test/", host),
    ),
    http("two Host headers", "/", { headers: "Host: good.test\r\nHost: other.test\r\n" }),
    http("an empty Host header", "/", { headers: "Host:\r\n" }),
    ...["user@good.test", "good.test:80@other.test", "[fe80::1%lo]:80", "[::1%25lo]:80", "[::1]", "good.test/x"].map(
      (host) => origin(host, host),
    ),
    ...["good.test other.test", "good.test\\other.test", "good.test#other.test", "good.test?other.test", "a:b:80"].map(
      (host) => origin(host, host),
    ),
    ...["good.test:0", "good.test:65536", "good.test:+80", "good.test:", ":80"].map((host) => origin(host, host)),
    ...["http://good.test@other.test/", "http://user:word@other.test/", "http://[fe80::1%25lo]/", "http:///x"].map(
      (url) => absolute(url),
    ),
    ...["http://good.test\\@other.test/", "http://[good.test]/", "http:good.test/", "ftp://good.test/"].map((url) =>
      absolute(url),
    ),
    absolute("http://other.test#@good.test/"),
    { ...connect("good.test:80@other.test:80"), until: undefined },
    { ...connect("http://good.test:80/"), until: undefined },
  ];
  for (const [name, response] of Object.entries(await send(ALLOW_GOOD, rejected)))
    assert.match(response, /^HTTP\/1\.1 400 /, name);

  const blocked = [
    ...["good.test,other.test", "good.test;other.test", "xgood.test", "good.testx", "good.test%2eother.test"].map(
      (host) => origin(host, host),
    ),
    ...["http://other.test?@good.test/", "http://other.test/@good.test"].map((url) => absolute(url)),
    ...["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "localhost.", "[::ffff:127.0.0.1]", "[::]"].map((host) =>
      absolute(`http://${host}/`),
    ),
    { ...connect("other.test:80"), sent: "CONNECT other.test:80 HTTP/1.1\r\nHost: good.test:80\r\n\r\n" },
  ];
  for (const [name, response] of Object.entries(await send(ALLOW_GOOD, blocked)))
    assert.match(response, /^HTTP\/1\.1 403 /, name);
  assert.deepEqual(network.requests, []);
});

testRequests("no spelling of a denied name reaches it", async ({ network, send }) => {
  // Resolvers drop the soft hyphen (0xAD), and map the ordinal indicator (0xAA) to `a`.
  const names = ["bad.test", "BAD.TEST.", "bad.test..", "b\xadad.test", "b\xaad.test", "b\xc2\xadad.test"];
  const steps = names.flatMap((name) => [
    http(`Host ${name}`, "/", { headers: `Host: ${name}\r\n` }),
    http(`URL ${name}`, `http://${name}/`),
    { ...connect(`${name}:80`), name: `CONNECT ${name}`, until: undefined },
    socks(`SOCKS5 ${name}`, name, 80),
  ]);
  for (const [name, response] of Object.entries(await send(DENY_BAD, steps)))
    assert.match(response, name.startsWith("SOCKS5") ? /^\x05\x00\x05[\x02\x08]/ : /^HTTP\/1\.1 40[03] /, name);
  assert.deepEqual(network.requests, []);
  assert.deepEqual(
    network.queries.filter((query) => query.includes("bad")),
    [],
  );
});

testRequests("a request smuggles no other request", async ({ network, send }) => {
  const hidden = "GET http://bad.test/hidden HTTP/1.1\r\nHost: bad.test\r\n\r\n";
  const post = (name: string, headers: string, body: string): NetworkStep => ({
    ...http(name, "http://good.test/p", { method: "POST" }),
    sent: `POST http://good.test/p HTTP/1.1\r\nHost: good.test\r\n${headers}\r\n${body}`,
  });
  const chunks = `0\r\n\r\n${hidden}`;
  const length = hidden.length;
  const steps = [
    post("length and coding", `Content-Length: ${chunks.length}\r\nTransfer-Encoding: chunked\r\n`, chunks),
    post("coding and length", `Transfer-Encoding: chunked\r\nContent-Length: ${chunks.length}\r\n`, chunks),
    post("two lengths", `Content-Length: 0\r\nContent-Length: ${length}\r\n`, hidden),
    post("the same length twice", `Content-Length: ${length}\r\nContent-Length: ${length}\r\n`, hidden),
    post("a list of lengths", `Content-Length: ${length}, ${length}\r\n`, hidden),
    post("a negative length", "Content-Length: -1\r\n", hidden),
    post("a signed length", `Content-Length: +${length}\r\n`, hidden),
    post("a hexadecimal length", `Content-Length: 0x${length.toString(16)}\r\n`, hidden),
    ...["xchunked", "chunked, identity", "identity, chunked", "chunked;q=1", "\x0bchunked", '"chunked"', "gzip"].map(
      (coding) => post(`coding ${coding}`, `Transfer-Encoding: ${coding}\r\n`, chunks),
    ),
    post("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks),
    post("a space before the colon", "Transfer-Encoding : chunked\r\n", chunks),
    post("a folded coding", "Transfer-Encoding:\r\n chunked\r\n", chunks),
    post("a folded header", "X-A: 1\r\n Transfer-Encoding: chunked\r\n", chunks),
    post("a bare line feed", "X-A: 1\nTransfer-Encoding: chunked\r\n", chunks),
    post("a bare carriage return", "X-A: 1\rTransfer-Encoding: chunked\r\n", chunks),
    post("a NUL byte", "X-A: 1\0\r\n", hidden),
    post("a chunk size with a prefix", "Transfer-Encoding: chunked\r\n", `0x0\r\n\r\n${hidden}`),
    post("a chunk that ends with a line feed", "Transfer-Encoding: chunked\r\n", `1\nx\n0\n\n${hidden}`),
    post("a chunk above its size", "Transfer-Encoding: chunked\r\n", `1\r\nxy\r\n${chunks}`),
    post("a chunk size that overflows", "Transfer-Encoding: chunked\r\n", `10000000000000000\r\n${chunks}`),
    { ...post("a version without headers", "", ""), sent: `GET http://good.test/p\r\n\r\n${hidden}` },
  ];
  const responses = await send({ domains: { "good.test": "allow", "bad.test": "deny" } }, steps);
  for (const [name, response] of Object.entries(responses)) assert.match(response, /^HTTP\/1\.1 400 /, name);
  // A response of the destination would start with 200.
  for (const [name, response] of Object.entries(responses)) assert.doesNotMatch(response, / 200 OK/, name);
  // A request whose body turns out to be malformed is forwarded first. Its server may record it at any later time.
  const forwarded = `${GOOD}:80 POST /p good.test`;

  const pipelined = (name: string, ...requests: string[]): NetworkStep => ({
    ...{ name, listener: "http", sent: requests.join("") },
  });
  const get = (host: string, more = "") => `GET http://${host}/g HTTP/1.1\r\nHost: ${host}\r\n${more}\r\n`;
  const sized = (host: string) => `${get(host, `Content-Length: ${length}\r\n`)}${hidden}`;
  const close = "Connection: close\r\n";
  const [first = "", second = "", third = ""] = Object.values(
    await send({ domains: { "good.test": "allow", "bad.test": "deny" } }, [
      pipelined("a denied host after an allowed one", get("good.test"), get("bad.test"), get("good.test", close)),
      pipelined("a request in a body", sized("good.test"), get("good.test", close)),
      pipelined("a request in the body of a blocked request", sized("bad.test"), get("good.test", close)),
    ]),
  );
  const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status);
  assert.deepEqual([first, second, third].map(statuses), [
    ["200", "403", "200"],
    ["200", "200"],
    ["403", "200"],
  ]);
  assert.deepEqual(
    network.requests.filter((request) => request !== forwarded),
    Array(5).fill(`${GOOD}:80 GET /g good.test`),
  );
});

testRequests("a policy with ports reaches no other port of an allowed host", async ({ network, send }) => {
  const steps = (): NetworkStep[] => [
    http("HTTP", "http://good.test:25/"),
    { ...connect("good.test:25"), name: "CONNECT", until: "\r\n\r\n" },
    socks("SOCKS5", "good.test", 25),
  ];
  const blocked = await send({ ...ALLOW_GOOD, ports: [80, 443] }, steps());
  assert.match(blocked.HTTP ?? "", /^HTTP\/1\.1 403 .*"reason":"port_not_allowed"/s);
  assert.match(blocked.CONNECT ?? "", /^HTTP\/1\.1 403 /);
  assert.match(blocked.SOCKS5 ?? "", /^\x05\x00\x05\x02/);
  assert.deepEqual(network.requests, []);
  // Without `ports`, an allowed host is reachable at all ports.
  const allowed = await send(ALLOW_GOOD, steps());
  assert.match(allowed.HTTP ?? "", /from 93\.184\.216\.34:25/);
  assert.match(allowed.CONNECT ?? "", /^HTTP\/1\.1 200 /);
  assert.match(allowed.SOCKS5 ?? "", /^\x05\x00\x05\x00/);
});

testRequests(
  "slow request heads delay no other request, and end within a minute",
  async ({ network, run, ...attacked }) => {
    const { client } = attacked.fixture;
    const argv = [process.execPath, SLOW_HEADS, "300"];
    await client.start("slow", argv, { ...sandboxedBy(ALLOW_GOOD), cwd: "file:///" });
    await client.outputContains("slow", "open\n");
    // Another request of the same process, after all slow ones.
    await client.outputContains("slow", "HTTP/1.1 200 OK");
    assert.match(await run(ALLOW_GOOD, "curl -sS -m 60 http://good.test/next"), new RegExp(`from ${GOOD}:80`));
    await client.outputContains("slow", "closed without a response\n");
    // The process still sent a byte per second, so that a limit between two bytes would not have ended them.
    assert.deepEqual(network.requests.toSorted(), [`${GOOD}:80 GET /next good.test`, `${GOOD}:80 GET /same good.test`]);
    await client.finished("slow");
  },
);

testRequests("a request head of more than 32 KiB ends the connection", async ({ network, send }) => {
  const long = http("long", "http://good.test/", { headers: `X-A: ${"a".repeat(33 * 1024)}\r\n` });
  const many = http("many", "http://good.test/", { headers: "X-A: a\r\n".repeat(5000) });
  for (const response of Object.values(await send(ALLOW_GOOD, [long, many])))
    assert.match(response, /^HTTP\/1\.1 431 /);
  assert.deepEqual(network.requests, []);
});
