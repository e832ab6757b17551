import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { USERS } from "../support/users.ts";
import {
  attemptProgram,
  type Ground,
  intent,
  READ_ROOT,
  readOnly,
  wayOut,
  workspaceWrite,
} from "./inside.ts";

/** A service of the host behind a unix socket, as an ssh-agent, D-Bus or Docker is. */
async function service(path: string, uid: number): Promise<Server & Disposable> {
  const server = createServer((socket) => socket.end("secret\n")).listen(path);
  await once(server, "listening");
  if (!path.startsWith("\0")) {
    chmodSync(path, 0o600);
    chownSync(path, uid, uid);
  }
  return Object.assign(server, { [Symbol.dispose]: () => void server.close() });
}

const abstractName = (ground: Ground) => `procwire-escape-${process.pid}-${ground.user.uid}`;

wayOut(
  "with the network off no unix socket can be made, by path or abstract, and pairs can",
  async (ground) => {
    const path = join(ground.folder, "agent.sock");
    using _path = await service(path, ground.user.uid);
    using _abstract = await service(`\0${abstractName(ground)}`, ground.user.uid);
    assert.equal(await ground.attempt(readOnly(), "connect", path), "EPERM");
    assert.equal(await ground.attempt(workspaceWrite(ground.folder), "connect", path), "EPERM");
    assert.equal(await ground.attempt(readOnly(), "connect", `@${abstractName(ground)}`), "EPERM");
    assert.equal(await ground.attempt(readOnly(), "socketpair"), "ok");
  },
);

wayOut("with the network off no family that knows no network namespace can be had", async (ground) => {
  const vsock = "40";
  const alg = "38";
  for (const family of [vsock, alg])
    assert.equal(await ground.attempt(readOnly(), "socket", family), "EPERM");
  assert.equal(await ground.attempt(readOnly(), "socket", "2"), "ok", "its own loopback");
});

wayOut("what needs no network keeps working without unix sockets", async (ground) => {
  const { output, exitCode } = await ground.script(
    readOnly(),
    `id -u; ${process.execPath} -e 'require("node:child_process").execFile("echo", ["child"], (e, out) => process.stdout.write(out))'`,
  );
  assert.deepEqual([output, exitCode], [`${ground.user.uid}\nchild\n`, 0]);
});

wayOut(
  "the server's own unix socket cannot be reached from inside, with the network off or on",
  async (ground) => {
    const path = join(ground.folder, "server.sock");
    assert.ok(existsSync(path));
    assert.notEqual(await ground.attempt(readOnly(), "connect", path), "ok");
    for (const sandbox of [
      intent([READ_ROOT], { network: "enabled" }),
      workspaceWrite(ground.folder, { network: "enabled" }),
    ])
      assert.match(await ground.attempt(sandbox, "connect", path), /^(ECONNREFUSED|EACCES|ENOENT|ENOTSOCK)$/);
    // Also after the folder was moved away.
    const inside = ground.makeFolder("a");
    const { output } = await ground.script(
      workspaceWrite(ground.folder, { network: "enabled" }),
      `cd "$1"; mv ../server.sock ../b.sock; ${attemptProgram()} connect ../b.sock; ${attemptProgram()} connect ../server.sock`.replace(
        "$1",
        inside,
      ),
    );
    assert.doesNotMatch(output, /^ok$/m);
  },
  { listen: "unix" },
);

wayOut(
  "with the network on Docker's socket is hidden",
  async (ground, t) => {
    if (existsSync("/run/docker.sock")) return t.skip("SKIPPED: this host has a real Docker");
    using _docker = await service("/run/docker.sock", 0);
    const sandbox = intent([READ_ROOT], { network: "enabled" });
    assert.notEqual(await ground.attempt(sandbox, "connect", "/run/docker.sock"), "ok");
    assert.notEqual(await ground.attempt(sandbox, "connect", "/var/run/docker.sock"), "ok");
  },
  { users: USERS.filter(({ uid }) => uid === 0) },
);

const KEY = "dGhlIHNhbXBsZSBub25jZQ==";
/** Asks to be let in as a client would, and prints the first line of the answer. */
const knock = (port: string, host = "127.0.0.1") =>
  `exec 3<>/dev/tcp/${host}/${port} || exit 9; printf 'GET / HTTP/1.1\\r\\nHost: ${host}:${port}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: ${KEY}\\r\\n\\r\\n' >&3; head -n 1 <&3`;

for (const [how, env] of [
  ["with the addon's sockets", {}],
  ["with Node's sockets", { PROCWIRE_NATIVE_SPAWNER: "/nowhere/spawner.node" }],
] as const) {
  wayOut(
    `the server's own port lets nobody in from inside, and everybody else meanwhile, ${how}`,
    async (ground) => {
      const { port } = new URL(ground.server.url);
      const sandbox = intent([READ_ROOT], { network: "enabled" });
      const inside = await ground.script(sandbox, knock(port));
      assert.match(inside.output, /^HTTP\/1.1 403 /);
      // The same from a child whose parent has ended.
      const orphan = await ground.script(sandbox, `cat <(setsid --fork bash -c "$KNOCK")`, {
        env: { PATH: "/usr/bin:/bin", KNOCK: knock(port) },
      });
      assert.match(orphan.output, /^HTTP\/1.1 403 /);
      await ground.client.start("stays", ["/bin/sleep", "60"], { sandbox });
      await using other = await ground.server.connect();
      await other.handshake();
      await ground.client.call("process/terminate", { processId: "stays" });
    },
    { env },
  );

  wayOut(
    `who knocks from inside and is gone at once is not let in either, ${how}`,
    async (ground) => {
      const { port } = new URL(ground.server.url);
      const sandbox = intent([READ_ROOT], { network: "enabled" });
      const marker = join(ground.folder, "started-from-inside");
      const frames = clientFrames([
        { id: 1, method: "initialize", params: { clientName: "inside" } },
        { method: "initialized", params: {} },
        {
          id: 2,
          method: "process/start",
          params: { processId: "x", argv: ["/usr/bin/touch", marker], cwd: "file:///", env: {}, tty: false },
        },
      ]);
      for (let round = 0; round < 10; round++) {
        const send = `exec 3<>/dev/tcp/127.0.0.1/${port}; { printf 'GET / HTTP/1.1\\r\\nHost: 127.0.0.1:${port}\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: ${KEY}\\r\\n\\r\\n'; printf '${frames}'; } >&3`;
        await ground.script(sandbox, send);
      }
      await ground.client.settled();
      assert.ok(!existsSync(marker));
    },
    { env },
  );
}

/** Masked text frames, as octal escapes for printf. */
function clientFrames(messages: unknown[]): string {
  const bytes = messages.flatMap((message) => {
    const text = Buffer.from(JSON.stringify(message));
    const head = text.length < 126 ? [0x80 | text.length] : [0x80 | 126, text.length >> 8, text.length & 255];
    return [0x81, ...head, 0, 0, 0, 0, ...text];
  });
  return bytes.map((byte) => `\\${byte.toString(8).padStart(3, "0")}`).join("");
}
