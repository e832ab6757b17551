import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { parseConnectUrl } from "../../../src/client/node/connect-url.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

/** The command without the shell that ignores the interrupt key. */
function program(text: string): string[] {
  const target = parseConnectUrl(text);
  assert.equal(target.type, "pipe");
  assert.ok(target.type === "pipe");
  const [shell, option, script = "", name] = target.argv;
  assert.deepEqual([shell, option, name], ["/bin/sh", "-c", "sh"]);
  assert.match(script, /^trap "" INT QUIT; .*exec "\$@"$/);
  return target.argv.slice(4);
}

describe("parseConnectUrl", () => {
  const sockets: [string, string][] = [
    ["ws://127.0.0.1:7070", "ws://127.0.0.1:7070"],
    ["wss://example.org/", "wss://example.org/"],
    ["unix:///run/procwire.sock", "unix:///run/procwire.sock"],
    ["localhost:7070", "ws://localhost:7070"],
    ["10.1.2.3:80", "ws://10.1.2.3:80"],
    ["[::1]:7070", "ws://[::1]:7070"],
  ];
  for (const [text, url] of sockets) {
    test(`accepts a socket URL: ${text}`, () => assert.deepEqual(parseConnectUrl(text), { type: "socket", url }));
  }

  test("builds the ssh command with user and port", () => {
    const words = program("ssh://me@build.example:2222");
    assert.deepEqual(words.slice(0, -1), ["ssh", "-T", "-p", "2222", "-l", "me", "--", "build.example"]);
    assert.match(words.at(-1) ?? "", /^exec sh -c '[^']*procwire[^']* connect;[^']*'$/);
    assert.deepEqual(program("ssh://build").slice(0, -1), ["ssh", "-T", "--", "build"]);
    assert.deepEqual(program("ssh://[fe80::1]:22").slice(0, -1), ["ssh", "-T", "-p", "22", "--", "fe80::1"]);
  });

  const gcm = "aes128-gcm@openssh.com";
  const chacha = "chacha20-poly1305@openssh.com";
  const ciphers: [string, string, string, string[]][] = [
    ["prefers AES-GCM to the default", "exit 0", `echo ciphers ${chacha},aes128-ctr,${gcm}`, [gcm]],
    ["keeps another order", "exit 0", `echo ciphers aes256-ctr,${chacha},${gcm}`, []],
    ["keeps a list without AES-GCM", "exit 0", `echo ciphers ${chacha},aes128-ctr`, []],
    ["keeps the order without AES instructions", "exit 1", `echo ciphers ${chacha},${gcm}`, []],
    ["ignores an ssh without -G", "exit 0", "echo unknown option >&2; exit 255", []],
  ];
  for (const [title, grep, options, expected] of ciphers) {
    test(`${title} as the cipher of ssh`, () => {
      using scratch = scratchDirectory();
      const directory = scratch.path;
      writeFileSync(join(directory, "grep"), `#!/bin/sh\n${grep}\n`, { mode: 0o755 });
      const ssh = `#!/bin/sh\nif [ "$1" = -G ]; then ${options}; else printf '%s\\n' "$@"; fi\n`;
      writeFileSync(join(directory, "ssh"), ssh, { mode: 0o755 });
      const target = parseConnectUrl("ssh://me@build");
      assert.ok(target.type === "pipe");
      for (const [program = "", ...args] of [target.argv, target.reconnectArgv]) {
        const env = { PATH: `${directory}:/usr/bin:/bin` };
        const words = execFileSync(program, args, { env, encoding: "utf8" }).trimEnd().split("\n");
        const first = words.flatMap((word) => /^Ciphers=([^,]*)/.exec(word)?.[1] ?? []);
        assert.deepEqual(first, expected);
        assert.deepEqual(words.slice(-4, -1), ["me", "--", "build"]);
      }
    });
  }

  test("leaves the input to the connection if a wrapper of ssh ignores -G", () => {
    using scratch = scratchDirectory();
    for (const [name, script] of [
      ["grep", "exit 0"],
      ["ssh", "exec cat"],
    ] as const)
      writeFileSync(join(scratch.path, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    const target = parseConnectUrl("ssh://build");
    assert.ok(target.type === "pipe");
    const [program = "", ...args] = target.argv;
    const env = { PATH: `${scratch.path}:/usr/bin:/bin` };
    assert.equal(execFileSync(program, args, { env, encoding: "utf8", input: "request" }), "request");
  });

  test("allows password prompts only for the first connection", () => {
    const target = parseConnectUrl("ssh://build");
    assert.ok(target.type === "pipe");
    assert.ok(!target.argv.includes("BatchMode=yes"));
    assert.ok(target.reconnectArgv.includes("BatchMode=yes"));
  });

  test("passes the socket path on the remote host", () => {
    assert.match(program("ssh://build/run/my%20server.sock").at(-1) ?? "", / connect "unix:\/\/\/run\/my server.sock"/);
    assert.match(program("docker://box/run/a.sock").at(-1) ?? "", / connect "unix:\/\/\/run\/a.sock"/);
  });

  test("builds the docker command with a user", () => {
    assert.deepEqual(program("docker://my-box").slice(0, -1), ["docker", "exec", "-i", "my-box", "sh", "-c"]);
    assert.deepEqual(program("docker://web@my-box").slice(0, 5), ["docker", "exec", "-i", "-u", "web"]);
  });

  test("runs exec: as a shell command", () => {
    const target = parseConnectUrl("exec:kubectl exec -i pod -- procwire connect");
    assert.ok(target.type === "pipe");
    assert.deepEqual(target.argv.slice(0, 2), ["/bin/sh", "-c"]);
    assert.match(target.argv[2] ?? "", /\nkubectl exec -i pod -- procwire connect$/);
  });

  const refused: [string, RegExp][] = [
    ["build", /^unsupported server URL `build`; expected .*; did you mean `ssh:\/\/build`, or a port: `build:7070`\?$/],
    ["/run/a.sock", /did you mean `unix:\/\/\/run\/a.sock`\?$/],
    ["https://build:1", /did you mean `wss:\/\/build:1`\?$/],
    ["ftp://build", /^unsupported server URL `ftp:\/\/build`; expected `ws:\/\/HOST:PORT`, .* or `exec:COMMAND`$/],
    ["unix://relative", /expected `unix:\/\/\/PATH`$/],
    ["ws://", /expected `ws:\/\/HOST:PORT` or/],
    ["ssh://-oProxyCommand=touch", /expected `ssh:/],
    ["ssh://-l@build", /expected `ssh:/],
    ["ssh://me:secret@build", /passwords are not allowed in the URL/],
    ["ssh://build/a'b", /the socket path may contain only/],
    ["ssh://build/$(id)", /the socket path may contain only/],
    ["ssh://build/%zz", /`\/%zz` is not valid in a URL/],
    ["docker://--privileged", /expected `docker:/],
    ["exec:", /ends in `procwire connect`/],
    ["", /^unsupported server URL ``; expected/],
  ];
  for (const [text, message] of refused) {
    test(`rejects with the expected form: ${text}`, () =>
      assert.throws(() => parseConnectUrl(text), { name: "ConnectUrlError", message }));
  }
});
