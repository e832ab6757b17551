import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { FlagError } from "../../../src/base/flag-error.ts";
import { AuthConfigError, type AuthFlags, parseAuthFlags } from "../../../src/server/auth/auth-config.ts";
import { authorize, type WebSocketAuth } from "../../../src/server/auth/websocket-auth.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

function file(name: string, content: string | Buffer, mode = 0o600): string {
  const path = join(scratch.path, name);
  writeFileSync(path, content, { mode });
  return path;
}

const policy = (flags: AuthFlags) => parseAuthFlags(flags).auth;

/** Null for an accepted request, else the text of the 401. */
async function refusal(auth: WebSocketAuth, authorization: string | undefined, nowMs: number) {
  const result = await authorize(auth, authorization, nowMs);
  return result.type === "admitted" ? null : result.reason;
}

const SECRET = "0123456789abcdef0123456789abcdef";
const NOW_MS = 1_800_000_000_000;
const now = NOW_MS / 1000;

function jwt(
  claims: object,
  options: { secret?: string | Buffer; header?: object; hash?: "sha256" | "sha512" } = {},
): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part(options.header ?? { alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `Bearer ${body}.${createHmac(options.hash ?? "sha256", options.secret ?? SECRET)
    .update(body)
    .digest("base64url")}`;
}

function configError(flags: Parameters<typeof parseAuthFlags>[0]): string {
  try {
    parseAuthFlags(flags);
  } catch (error) {
    assert.ok(error instanceof AuthConfigError || error instanceof FlagError);
    return error.message;
  }
  assert.fail("it was accepted");
}

describe("a capability token", () => {
  const byFile = policy({ wsAuth: "capability-token", wsTokenFile: file("token", "s3cret \r\n") });
  const byDigest = policy({
    wsAuth: "capability-token",
    wsTokenSha256: createHash("sha256").update("s3cret").digest("hex").toUpperCase(),
  });
  for (const [how, auth] of Object.entries({ "from a file": byFile, "by its digest": byDigest })) {
    test(`${how} is accepted with any case of the scheme`, async () => {
      for (const scheme of ["Bearer", "bearer", "BEARER"]) {
        assert.equal(await refusal(auth, `${scheme} s3cret`, NOW_MS), null);
      }
    });

    test(`${how} is rejected with the reason`, async () => {
      assert.equal(await refusal(auth, undefined, NOW_MS), "missing websocket bearer token");
      assert.equal(await refusal(auth, "Basic s3cret", NOW_MS), "invalid authorization header");
      assert.equal(await refusal(auth, "Bearer", NOW_MS), "invalid authorization header");
      assert.equal(await refusal(auth, "Bearer wrong", NOW_MS), "invalid websocket bearer token");
    });
  }
});

describe("a signed token", () => {
  const secretFile = file("secret", `${SECRET}\n`);
  const plain = policy({ wsAuth: "signed-bearer-token", wsSharedSecretFile: secretFile });
  const strict = policy({
    wsAuth: "signed-bearer-token",
    wsSharedSecretFile: secretFile,
    wsIssuer: "me",
    wsAudience: "you",
    wsMaxClockSkewSeconds: 0,
  });

  const cases: [what: string, auth: typeof plain, header: string, outcome: string | null][] = [
    ["fresh", plain, jwt({ exp: now + 60 }), null],
    ["expired within the skew", plain, jwt({ exp: now - 20 }), null],
    ["expired beyond the skew", plain, jwt({ exp: now - 60 }), "expired websocket jwt"],
    ["expired with no skew allowed", strict, jwt({ exp: now - 1, iss: "me", aud: "you" }), "expired websocket jwt"],
    ["without an expiry", plain, jwt({}), "invalid websocket jwt"],
    ["signed with another secret", plain, jwt({ exp: now + 60 }, { secret: "x".repeat(32) }), "invalid websocket jwt"],
    [
      "with another algorithm",
      plain,
      jwt({ exp: now + 60 }, { header: { alg: "HS512" }, hash: "sha512" }),
      "invalid websocket jwt",
    ],
    [
      "unsigned",
      plain,
      `${jwt({ exp: now + 60 }, { header: { alg: "none" } }).replace(/[^.]*$/, "")}`,
      "invalid websocket jwt",
    ],
    ["with four parts", plain, `${jwt({ exp: now + 60 })}.x`, "invalid websocket jwt"],
    ["not valid yet", plain, jwt({ exp: now + 600, nbf: now + 60 }), "websocket jwt is not valid yet"],
    ["for this audience", strict, jwt({ exp: now + 60, iss: "me", aud: "you" }), null],
    ["for several audiences", strict, jwt({ exp: now + 60, iss: "me", aud: ["they", "you"] }), null],
    ["of another issuer", strict, jwt({ exp: now + 60, iss: "he", aud: "you" }), "websocket jwt issuer mismatch"],
    ["for another audience", strict, jwt({ exp: now + 60, iss: "me", aud: "they" }), "websocket jwt audience mismatch"],
    ["with a non-numeric nbf", plain, jwt({ exp: now + 60, nbf: "0" }), "invalid websocket jwt"],
    ["with a subject that is not a string", plain, jwt({ exp: now + 60, sub: 7 }), "invalid websocket jwt"],
    [
      "with an unknown critical header",
      plain,
      jwt({ exp: now + 60 }, { header: { alg: "HS256", crit: ["exp2"], exp2: 1 } }),
      "invalid websocket jwt",
    ],
    ["expired, and of another issuer", strict, jwt({ exp: now - 60, iss: "he", aud: "you" }), "expired websocket jwt"],
    ["that is not JSON", plain, "Bearer a.b.c", "invalid websocket jwt"],
  ];
  for (const [what, auth, header, outcome] of cases) {
    test(`${what}: ${outcome ?? "accepted"}`, async () => assert.equal(await refusal(auth, header, NOW_MS), outcome));
  }
});

describe("authentication flags", () => {
  test("that exclude each other are rejected with the text of the Codex exec-server", () => {
    assert.equal(
      configError({ wsAuth: "capability-token" }),
      "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set",
    );
    assert.equal(
      configError({ wsTokenFile: "x" }),
      "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
    );
    assert.equal(
      configError({ wsAuth: "signed-bearer-token" }),
      "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
    );
    assert.equal(
      configError({ wsAuth: "capability-token", wsTokenSha256: "abc" }),
      "--ws-token-sha256 must be a 64-character hex SHA-256 digest",
    );
    assert.equal(
      configError({ wsAuth: "capability-token", wsTokenFile: "x", wsTokenSha256: "y" }),
      "`--ws-token-file` and `--ws-token-sha256` are mutually exclusive",
    );
    assert.match(
      configError({ wsAuth: "capability-token", wsTokenFile: "/nonexistent" }),
      /^failed to read websocket auth secret \/nonexistent: /,
    );
    const short = file("short", "too short");
    assert.equal(
      configError({ wsAuth: "signed-bearer-token", wsSharedSecretFile: short }),
      `signed websocket bearer secret ${short} must be at least 32 bytes`,
    );
    assert.match(configError({ wsAuth: "magic" }), /^--ws-auth magic: unsupported kind; expected /);
    assert.match(configError({ wsAuth: "capability-token", wsTokenFile: file("empty", "\n") }), /is empty$/);
  });

  test("disable authentication if there are none", async () =>
    assert.equal(await refusal(policy({}), undefined, NOW_MS), null));

  test("generate a new token for `auto` each time, and accept only that token", async () => {
    const [one, two] = [parseAuthFlags({ wsAuth: "auto" }), parseAuthFlags({ wsAuth: "auto" })];
    assert.match(String(one.newToken), /^[\w-]{43}$/);
    assert.notEqual(one.newToken, two.newToken);
    assert.equal(await refusal(one.auth, `Bearer ${one.newToken}`, NOW_MS), null);
    assert.equal(await refusal(two.auth, `Bearer ${one.newToken}`, NOW_MS), "invalid websocket bearer token");
    assert.match(configError({ wsAuth: "auto", wsTokenFile: "x" }), /^websocket auth flags require /);
  });

  test("require a claim or a separate token for operators", () => {
    const token = file("everybody", "e".repeat(40));
    assert.match(
      configError({ wsAuth: "capability-token", wsTokenFile: token, operatorTokenFile: token }),
      /is also the client token; use a different token for operators$/,
    );
    for (const wsAuth of [undefined, "auto"]) {
      assert.match(configError({ wsAuth, operatorClaim: "a=b" }), /^--operator-claim a=b: requires /);
    }
    const signed = { wsAuth: "signed-bearer-token", wsSharedSecretFile: file("signing", SECRET) };
    for (const operatorClaim of ["role", "=x", "role="]) {
      assert.match(configError({ ...signed, operatorClaim }), /expected NAME=VALUE$/);
    }
  });
});

describe("a secret file", () => {
  test("is read as bytes without trailing whitespace", async () => {
    const bytes = Buffer.from([0x09, 0xff, 0xfe, 0x80, 0xc3, 0x28, 0xa0]);
    const auth = policy({
      wsAuth: "capability-token",
      wsTokenFile: file("bytes", Buffer.concat([bytes.subarray(1), Buffer.from(" \t\r\n")])),
    });
    assert.equal(await refusal(auth, `Bearer ${bytes.toString("latin1", 1)}`, NOW_MS), null);
    assert.equal(await refusal(auth, `Bearer ${bytes.toString("utf8", 1)}`, NOW_MS), "invalid authorization header");
    const secret = Buffer.concat([bytes, Buffer.alloc(32, 0xee)]);
    const signed = policy({
      wsAuth: "signed-bearer-token",
      wsSharedSecretFile: file("signing-bytes", Buffer.concat([secret, Buffer.from("\n")])),
    });
    assert.equal(await refusal(signed, jwt({ exp: now + 60 }, { secret }), NOW_MS), null);
  });

  test("that other users can read, or that is short, is accepted with a warning", () => {
    const warned = (wsTokenFile: string) => parseAuthFlags({ wsAuth: "capability-token", wsTokenFile }).warnings;
    const long = "x".repeat(32);
    assert.deepEqual(warned(file("mine", long)), []);
    for (const [name, mode] of [
      ["group", 0o640],
      ["world", 0o604],
    ] as const) {
      const path = file(name, long, mode);
      assert.deepEqual(warned(path), [
        `other users can read the secret in ${path} (mode ${mode.toString(8)}); run \`chmod 600\` on it`,
      ]);
    }
    assert.match(warned(file("short-token", "x".repeat(31)))[0] ?? "", /is short enough to guess \(31 bytes\)/);
  });
});
