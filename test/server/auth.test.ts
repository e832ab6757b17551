import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { AuthConfigError, authFromFlags, refusal } from "../../src/server/auth.ts";
import { scratchDirectory } from "../support/serve.ts";

const scratch = scratchDirectory();
after(() => scratch[Symbol.dispose]());

function file(name: string, content: string): string {
  const path = join(scratch.path, name);
  writeFileSync(path, content);
  return path;
}

const SECRET = "0123456789abcdef0123456789abcdef";
const NOW_MS = 1_800_000_000_000;
const now = NOW_MS / 1000;

function jwt(claims: object, options: { secret?: string; header?: object } = {}): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part(options.header ?? { alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `Bearer ${body}.${createHmac("sha256", options.secret ?? SECRET)
    .update(body)
    .digest("base64url")}`;
}

function configError(flags: Parameters<typeof authFromFlags>[0]): string {
  try {
    authFromFlags(flags);
  } catch (error) {
    assert.ok(error instanceof AuthConfigError);
    return error.message;
  }
  assert.fail("it was accepted");
}

describe("a capability token", () => {
  const byFile = authFromFlags({ wsAuth: "capability-token", wsTokenFile: file("token", " s3cret\n") });
  const byDigest = authFromFlags({
    wsAuth: "capability-token",
    wsTokenSha256: createHash("sha256").update("s3cret").digest("hex").toUpperCase(),
  });
  for (const [how, auth] of Object.entries({ "from a file": byFile, "by its digest": byDigest })) {
    test(`${how} lets in who has it, whatever the case of the scheme`, () => {
      for (const scheme of ["Bearer", "bearer", "BEARER"]) {
        assert.equal(refusal(auth, `${scheme} s3cret`, NOW_MS), null);
      }
    });

    test(`${how} says why somebody may not come in`, () => {
      assert.equal(refusal(auth, undefined, NOW_MS), "missing websocket bearer token");
      assert.equal(refusal(auth, "Basic s3cret", NOW_MS), "invalid authorization header");
      assert.equal(refusal(auth, "Bearer", NOW_MS), "invalid authorization header");
      assert.equal(refusal(auth, "Bearer wrong", NOW_MS), "invalid websocket bearer token");
    });
  }
});

describe("a signed token", () => {
  const secretFile = file("secret", `${SECRET}\n`);
  const plain = authFromFlags({ wsAuth: "signed-bearer-token", wsSharedSecretFile: secretFile });
  const strict = authFromFlags({
    wsAuth: "signed-bearer-token",
    wsSharedSecretFile: secretFile,
    wsIssuer: "me",
    wsAudience: "you",
    wsMaxClockSkewSeconds: 0,
  });

  const cases: [what: string, auth: typeof plain, header: string, outcome: string | null][] = [
    ["fresh", plain, jwt({ exp: now + 60 }), null],
    ["expired within the skew", plain, jwt({ exp: now - 20 }), null],
    ["expired beyond it", plain, jwt({ exp: now - 60 }), "expired websocket jwt"],
    [
      "expired with no skew allowed",
      strict,
      jwt({ exp: now - 1, iss: "me", aud: "you" }),
      "expired websocket jwt",
    ],
    ["without an expiry", plain, jwt({}), "invalid websocket jwt"],
    [
      "signed by somebody else",
      plain,
      jwt({ exp: now + 60 }, { secret: "x".repeat(32) }),
      "invalid websocket jwt",
    ],
    [
      "with another algorithm",
      plain,
      jwt({ exp: now + 60 }, { header: { alg: "HS512" } }),
      "invalid websocket jwt",
    ],
    [
      "unsigned",
      plain,
      `${jwt({ exp: now + 60 }, { header: { alg: "none" } }).replace(/[^.]*$/, "")}`,
      "invalid websocket jwt",
    ],
    ["with a part too many", plain, `${jwt({ exp: now + 60 })}.x`, "invalid websocket jwt"],
    ["not valid yet", plain, jwt({ exp: now + 600, nbf: now + 60 }), "websocket jwt is not valid yet"],
    ["for this audience", strict, jwt({ exp: now + 60, iss: "me", aud: "you" }), null],
    ["for several audiences", strict, jwt({ exp: now + 60, iss: "me", aud: ["they", "you"] }), null],
    [
      "of another issuer",
      strict,
      jwt({ exp: now + 60, iss: "he", aud: "you" }),
      "websocket jwt issuer mismatch",
    ],
    [
      "for another audience",
      strict,
      jwt({ exp: now + 60, iss: "me", aud: "they" }),
      "websocket jwt audience mismatch",
    ],
    ["that is no JSON", plain, "Bearer a.b.c", "invalid websocket jwt"],
  ];
  for (const [what, auth, header, outcome] of cases) {
    test(`${what}: ${outcome ?? "let in"}`, () => assert.equal(refusal(auth, header, NOW_MS), outcome));
  }
});

describe("flags", () => {
  test("that do not belong together are told in the reference server's words", () => {
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
    assert.match(configError({ wsAuth: "magic" }), /^unsupported --ws-auth `magic`; expected /);
    assert.match(configError({ wsAuth: "capability-token", wsTokenFile: file("empty", "\n") }), /is empty$/);
  });

  test("none at all lets everybody in", () =>
    assert.equal(refusal(authFromFlags({}), undefined, NOW_MS), null));
});
