import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseConnectUrl } from "../../../src/client/node/connect-url.ts";

/** The command without the shell that ignores the interrupt key. */
function program(text: string): string[] {
  const target = parseConnectUrl(text);
  assert.equal(target.type, "pipe");
  assert.ok(target.type === "pipe");
  assert.deepEqual(target.argv.slice(0, 4), ["/bin/sh", "-c", 'trap "" INT QUIT; exec "$@"', "sh"]);
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
