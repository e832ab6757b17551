import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDynamicSpec, parseForwardSpec } from "../../../src/cli/options/forward-spec.ts";
import { formatAddress } from "../../../src/forward/forward-address.ts";

test("forwards are parsed as OpenSSH writes them", () => {
  for (const [text, listen, target] of [
    ["8080", "127.0.0.1:8080", "localhost:8080"],
    ["8080:db:80", "127.0.0.1:8080", "db:80"],
    ["0:localhost:80", "127.0.0.1:0", "localhost:80"],
    ["127.0.0.2:8080:db:80", "127.0.0.2:8080", "db:80"],
    ["localhost:8080:db:80", "127.0.0.1:8080", "db:80"],
    ["*:8080:db:80", "0.0.0.0:8080", "db:80"],
    [":8080:db:80", "0.0.0.0:8080", "db:80"],
    ["[::1]:8080:[fe80::2]:80", "[::1]:8080", "[fe80::2]:80"],
    ["8080:/run/app.sock", "127.0.0.1:8080", "/run/app.sock"],
    ["127.0.0.2:8080:/run/app.sock", "127.0.0.2:8080", "/run/app.sock"],
    ["/tmp/here.sock:db:5432", "/tmp/here.sock", "db:5432"],
    ["/tmp/here.sock:/run/there.sock", "/tmp/here.sock", "/run/there.sock"],
  ] as const) {
    const spec = parseForwardSpec(text, "-L");
    assert.deepEqual([formatAddress(spec.listen), formatAddress(spec.target)], [listen, target], text);
  }
});

test("other texts are rejected with the flag and the expected form", () => {
  const wrong = ["", "http", "0", "80:x", "80:x:0", "80:x:99999", "99999", "80::80", "1:2:3:4:5", "/tmp/x", "[::1:80"];
  for (const text of [...wrong, "/a:/b:/c", "x:80:/a:80", "80:relative/path"])
    assert.throws(() => parseForwardSpec(text, "-L"), { message: /^invalid -L `.*`; expected \[BIND:\]PORT/ }, text);
  for (const text of ["", "x", "80:x", "/tmp/s", "1:2:3"])
    assert.throws(() => parseDynamicSpec(text), { message: /^invalid -D `.*`; expected \[BIND:\]PORT$/ }, text);
  assert.deepEqual(parseDynamicSpec("*:1080"), { host: "0.0.0.0", port: 1080 });
});
