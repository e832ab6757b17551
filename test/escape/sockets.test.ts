import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { dirname, join } from "node:path";
import { USERS } from "../support/system/users.ts";
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
  "with the network on the sockets of Docker, D-Bus and a user's own services are hidden",
  async (ground) => {
    const sandbox = intent([READ_ROOT], { network: "enabled" });
    for (const path of ["/run/docker.sock", "/run/dbus/system_bus_socket", "/run/user/0/ssh-agent.socket"]) {
      // A real one is as good.
      if (existsSync(path)) {
        assert.notEqual(await ground.attempt(sandbox, "connect", path), "ok", path);
        continue;
      }
      const made = mkdirSync(dirname(path), { recursive: true });
      try {
        using _service = await service(path, 0);
        assert.notEqual(await ground.attempt(sandbox, "connect", path), "ok", path);
        assert.notEqual(await ground.attempt(sandbox, "connect", `/var${path}`), "ok", `/var${path}`);
      } finally {
        if (made !== undefined) rmSync(made, { recursive: true });
      }
    }
  },
  { users: USERS.filter(({ uid }) => uid === 0) },
);
