/** Signed tokens that a key set verifies, from a file and from a URL, on a manual clock. */

import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { once } from "node:events";
import { renameSync, unlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { Clock } from "../../../src/async/clock.ts";
import { FlagError } from "../../../src/base/flag-error.ts";
import { type AuthFlags, parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { AUTH_FILE_CHECK_INTERVAL_MS } from "../../../src/server/auth/auth-file-watcher.ts";
import {
  KEY_SET_COOLDOWN_MS,
  KEY_SET_FETCH_TIMEOUT_MS,
  KEY_SET_MAX_AGE_MS,
  KEY_SET_REFRESH_MS,
  MAX_KEY_SET_BYTES,
  RemoteKeySet,
} from "../../../src/server/auth/remote-key-set.ts";
import { authorize } from "../../../src/server/auth/websocket-auth.ts";
import { serveSigned, signToken } from "../../support/auth/signed-server.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

interface TestKey {
  jwk: Record<string, unknown>;
  privateKey: KeyObject;
}

function newKey(kid: string | undefined, type: "ec" | "ed25519" = "ec"): TestKey {
  const { publicKey, privateKey } =
    type === "ec" ? generateKeyPairSync("ec", { namedCurve: "P-256" }) : generateKeyPairSync("ed25519");
  return { jwk: { ...publicKey.export({ format: "jwk" }), kid }, privateKey };
}

const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");

function signWith({ jwk, privateKey }: TestKey, claims: object, header: object = {}): string {
  const alg = jwk.kty === "OKP" ? "EdDSA" : "ES256";
  const body = `${part({ alg, kid: jwk.kid, ...header })}.${part({ aud: "procwire", ...claims })}`;
  const hash = jwk.kty === "OKP" ? null : "sha256";
  return `${body}.${sign(hash, Buffer.from(body), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url")}`;
}

const keySetText = (...keys: TestKey[]) => JSON.stringify({ keys: keys.map(({ jwk }) => jwk) });

let files = 0;
function file(content: string): string {
  const path = join(scratch.path, `keys-${++files}`);
  writeFileSync(path, content);
  return path;
}

const flagsFor = (wsJwks: string, more: AuthFlags = {}): AuthFlags => ({
  wsAuth: "signed-bearer-token",
  wsAudience: "procwire",
  wsJwks,
  ...more,
});

const NOW_MS = 1_800_000_000_000;
const exp = NOW_MS / 1000 + 60;

describe("a key set in a file", () => {
  const [one, two, edwards] = [newKey("one"), newKey("two"), newKey("three", "ed25519")];
  const { auth, warnings } = parseAuthFlags(flagsFor(file(keySetText(one, two, edwards))));
  const outcome = async (token: string) => {
    const result = await authorize(auth, `Bearer ${token}`, NOW_MS);
    return result.type === "admitted" ? result.principal.id : result.reason;
  };

  test("verifies tokens of each of its keys, with the claims of every signed token", async () => {
    assert.deepEqual(warnings, []);
    for (const key of [one, two, edwards]) assert.equal(await outcome(signWith(key, { exp, sub: "ann" })), "jwt:ann");
    assert.equal(await outcome(signWith(one, { exp: 1 })), "expired websocket jwt");
    assert.equal(await outcome(signWith(one, { exp, aud: "other" })), "websocket jwt audience mismatch");
    assert.equal(await outcome(signWith(one, {})), "invalid websocket jwt");
  });

  test("rejects other keys, other algorithms, and a public key used as a secret", async () => {
    const unknown = "invalid websocket jwt: no key of the key set matches its header";
    assert.equal(await outcome(signWith(newKey("four"), { exp })), unknown);
    assert.equal(await outcome(signWith(newKey("one"), { exp })), "invalid websocket jwt");
    assert.match(await outcome(signWith(one, { exp }, { kid: undefined })), /several keys match; .* requires `kid`$/);
    for (const secret of [JSON.stringify(one.jwk), String(one.jwk.x), ""]) {
      const confused = secret === "" ? `${part({ alg: "none" })}.${part({ exp })}.` : signToken({ exp }, secret);
      assert.equal(await outcome(confused), "invalid websocket jwt");
    }
  });

  test("is read again when it changes, and ends the connections of keys that it no longer has", async () => {
    const path = file(keySetText(one));
    const { auth: policy, authFiles } = parseAuthFlags(flagsFor(path));
    await using server = await serveSigned({ auth: policy, authFiles });
    const token = (key: TestKey) => signWith(key, { exp: server.clock.now() / 1000 + 3600 });
    await using former = await server.connect(token(one));
    await former.handshake();
    const replace = async (content: string) => {
      writeFileSync(`${path}.new`, content);
      renameSync(`${path}.new`, path);
      await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    };
    await replace(keySetText(one, two));
    await former.roundTrip();
    await using next = await server.connect(token(two));
    await next.handshake();
    await replace(keySetText(two));
    await former.ended();
    await replace("{}");
    await next.roundTrip();
    unlinkSync(path);
    await server.clock.advance(3 * AUTH_FILE_CHECK_INTERVAL_MS);
    await next.ended();
    await server.rejects(token(two));
  });

  test("is rejected at the start with the reason", () => {
    const { privateKey } = generateKeyPairSync("ed25519");
    const secretJwk = JSON.stringify({ keys: [privateKey.export({ format: "jwk" })] });
    const good = file(keySetText(one));
    const cases: [AuthFlags, RegExp][] = [
      [flagsFor("/none"), /^--ws-jwks \/none: ENOENT/],
      [flagsFor(file("")), /: is empty$/],
      [flagsFor(file("[]")), /: expected a JSON object with the array `keys`/],
      [flagsFor(file('{"keys":[{"kty":"RSA"}]}')), /: none of its 1 keys verifies signatures/],
      [flagsFor(file('{"keys":[{"kty":"oct","k":"AAAA"}]}')), /: key 1 is private or symmetric/],
      [flagsFor(file(secretJwk)), /: key 1 is private or symmetric/],
      [flagsFor(good, { wsSharedSecretFile: good }), /: conflicts with `--ws-shared-secret-file`/],
      [flagsFor(good, { wsAudience: undefined }), /: requires `--ws-audience`/],
      [flagsFor(good, { wsAuth: "capability-token" }), /: requires `--ws-auth signed-bearer-token`/],
      [flagsFor("http://keys.example/jwks"), /could replace the keys; use https:\/\//],
      [flagsFor("https://user:pass@keys.example/jwks"), /expected a URL without user and password/],
    ];
    for (const [flags, message] of cases) assert.throws(() => parseAuthFlags(flags), { name: FlagError.name, message });
  });
});

/** Responses of an issuer of tokens, and the number of its requests. */
interface Issuer {
  body: string;
  status: number;
  /** Sends no response. */
  isSilent: boolean;
  requests: number;
}

async function startIssuer(first: string) {
  const issuer: Issuer = { body: first, status: 200, isSilent: false, requests: 0 };
  const server = createServer((_request, response) => {
    issuer.requests++;
    if (!issuer.isSilent) response.writeHead(issuer.status, { location: "/elsewhere" }).end(issuer.body);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return Object.assign(issuer, {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  });
}

describe("a key set at a URL", () => {
  const [one, two, three] = [newKey("one"), newKey("two"), newKey("three")];
  const serveFor = async (url: string) => {
    const server = await serveSigned({ auth: parseAuthFlags(flagsFor(url)).auth });
    const token = (key: TestKey) => signWith(key, { exp: server.clock.now() / 1000 + 200_000, sub: "ann" });
    const accepts = async (key: TestKey) => {
      const client = await server.connect(token(key));
      await client.handshake();
      return client;
    };
    return { ...server, accepts, rejects: (key: TestKey) => server.rejects(token(key)) };
  };

  test("is fetched once for an unknown key, and not again within the cooldown", async () => {
    await using issuer = await startIssuer(keySetText(one));
    await using server = await serveFor(issuer.url);
    assert.equal(issuer.requests, 1);
    await using former = await server.accepts(one);
    issuer.body = keySetText(one, two);
    await server.rejects(two);
    assert.equal(issuer.requests, 1);
    await server.clock.advance(KEY_SET_COOLDOWN_MS);
    const clients = await Promise.all([server.accepts(two), server.accepts(two), server.accepts(one)]);
    assert.equal(issuer.requests, 2);
    await server.rejects(three);
    await server.rejects(three);
    assert.equal(issuer.requests, 2);
    issuer.body = keySetText(two);
    await server.clock.advance(KEY_SET_REFRESH_MS);
    await former.ended();
    await clients[0]?.roundTrip();
    for (const client of clients) await client[Symbol.asyncDispose]();
  });

  const faults: [fault: string, change: Partial<Issuer>, cause: RegExp][] = [
    ["an error", { status: 503 }, /: HTTP status 503; expected 200;/],
    ["a redirect", { status: 302 }, /: HTTP status 302;/],
    ["a body without keys", { body: '{"keys":[]}' }, /: none of its 0 keys verifies signatures;/],
    [
      "a body that is too large",
      { body: " ".repeat(MAX_KEY_SET_BYTES + 1) },
      /: the response has more than 262144 bytes;/,
    ],
    ["no response", { isSilent: true }, /: no response within 5 seconds;/],
  ];
  for (const [fault, change, cause] of faults)
    test(`keeps its keys in use while the URL returns ${fault}, and no longer than documented`, async () => {
      await using issuer = await startIssuer(keySetText(one));
      const timers = new ManualClock();
      let elapsedMs = 0;
      const clock: Clock = {
        now: () => timers.now() + elapsedMs,
        monotonic: () => timers.monotonic() + elapsedMs,
        after: (ms, fn) => timers.after(ms, fn),
      };
      const lines: string[] = [];
      let changes = 0;
      using keys = new RemoteKeySet({
        ...{ url: issuer.url, clock, log: (_level, line) => void lines.push(line) },
        onChanged: () => changes++,
      });
      const refreshAfter = async (ms: number) => {
        elapsedMs += ms;
        const { requests } = issuer;
        const refreshed = keys.refresh();
        await until("another request", () => issuer.requests > requests);
        if (issuer.isSilent) await timers.advance(KEY_SET_FETCH_TIMEOUT_MS);
        await refreshed;
      };
      await refreshAfter(0);
      Object.assign(issuer, change);
      await refreshAfter(KEY_SET_REFRESH_MS);
      await refreshAfter(KEY_SET_COOLDOWN_MS);
      assert.deepEqual([keys.keySet?.keys.length, changes, lines.length], [1, 0, 1]);
      assert.match(lines[0] ?? "", cause);
      assert.match(lines[0] ?? "", /the former keys stay in use for 24 hours after their last fetch$/);
      await refreshAfter(KEY_SET_MAX_AGE_MS);
      assert.deepEqual([keys.keySet, changes, lines.length], [null, 1, 2]);
      Object.assign(issuer, { status: 200, isSilent: false, body: keySetText(one) });
      await refreshAfter(KEY_SET_COOLDOWN_MS);
      assert.equal(keys.keySet?.keys.length, 1);
      assert.match(lines[2] ?? "", /^fetched the key set .* again$/);
    });

  test("does not keep the server from starting, and the log names the cause", async () => {
    await using issuer = await startIssuer(keySetText(one));
    issuer.status = 500;
    const args = ["--ws-auth", "signed-bearer-token", "--ws-jwks", issuer.url, "--ws-audience", "procwire"];
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", ...args]).listening();
    await until("the error", () => server.stderr.includes(`cannot fetch the key set ${issuer.url}: HTTP status 500`));
    const bearer = signWith(one, { exp: Date.now() / 1000 + 60 });
    await assert.rejects(webSocketWire(server.url, { authorization: `Bearer ${bearer}` }), /401/);
    issuer.status = 200;
    await using other = await new ServeChild(["--listen", "ws://127.0.0.1:0", ...args]).listening();
    await using client = new WireClient(await webSocketWire(other.url, { authorization: `Bearer ${bearer}` }));
    await client.handshake();
  });
});
