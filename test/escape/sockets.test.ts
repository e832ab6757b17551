import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { dirname, join } from "node:path";
import { loadAddon } from "../../src/native/load-addon.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";
import { USERS } from "../support/system/users.ts";
import { attemptProgram, type Fixture, intent, READ_ROOT, readOnly, testEscape, workspaceWrite } from "./inside.ts";

/** Starts a service of the host on a unix socket, like ssh-agent, D-Bus or Docker. */
async function service(path: string, uid: number): Promise<Server & Disposable> {
  const server = createServer((socket) => socket.end("secret\n")).listen(path);
  await once(server, "listening");
  if (!path.startsWith("\0")) {
    chmodSync(path, 0o600);
    chownSync(path, uid, uid);
  }
  return Object.assign(server, { [Symbol.dispose]: () => void server.close() });
}

// Node has neither datagram nor seqpacket unix sockets.
const SERVICE = `
use Socket;
$| = 1;
my ($type, @paths) = @ARGV;
for my $path (@paths) {
  socket(my $socket, AF_UNIX, $type, 0) or die $!;
  bind($socket, pack("S a*", AF_UNIX, $path =~ s/^@/\\0/r)) or die $!;
  $type == SOCK_DGRAM or listen($socket, 1) or die $!;
  push @sockets, $socket;
  chmod 0777, $path;
}
print "bound\\n";
my $bits = "";
vec($bits, fileno($_), 1) = 1 for @sockets;
select($bits, undef, undef, undef);
print "reached\\n";
<STDIN>;
`;

/** A service of a socket type at these addresses. `output` reports whether a datagram or a connection has arrived. */
async function typedService(type: number, ...paths: string[]) {
  const child = spawn("perl", ["-e", SERVICE, `${type}`, ...paths], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "close");
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await until("the service", () => output !== "", ended);
  return {
    output: () => output,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

const abstractName = (fixture: Fixture) => `procwire-escape-${process.pid}-${fixture.user.uid}`;

testEscape(
  "with the network off a command cannot create unix sockets, by path or abstract, but can create socket pairs",
  async (fixture) => {
    const path = join(fixture.directory, "agent.sock");
    using _path = await service(path, fixture.user.uid);
    using _abstract = await service(`\0${abstractName(fixture)}`, fixture.user.uid);
    assert.equal(await fixture.attempt(readOnly(), "connect", path), "EPERM");
    assert.equal(await fixture.attempt(workspaceWrite(fixture.directory), "connect", path), "EPERM");
    assert.equal(await fixture.attempt(readOnly(), "connect", `@${abstractName(fixture)}`), "EPERM");
    assert.equal(await fixture.attempt(readOnly(), "socketpair"), "ok");
  },
);

const STREAM = 1;
const DGRAM = 2;
const RAW = 3;
const SEQPACKET = 5;
/** SOCK_NONBLOCK, SOCK_CLOEXEC. */
const SOCKET_FLAGS = [0, 0x800, 0x80000, 0x80800];

testEscape("with the network off no datagram leaves through an end of a socket pair", async (fixture) => {
  const path = join(fixture.directory, "notify");
  await using service = await typedService(DGRAM, path, `@${abstractName(fixture)}`);
  const sandbox = workspaceWrite(fixture.directory);
  for (const type of [DGRAM, RAW]) {
    for (const flags of SOCKET_FLAGS)
      assert.equal(await fixture.attempt(sandbox, "socketpair", `${type | flags}`), "EPERM");
    for (const how of ["connect", "sendto"])
      for (const target of [path, `@${abstractName(fixture)}`])
        assert.equal(await fixture.attempt(sandbox, "pair", `${type}`, how, target), "EPERM");
    assert.equal(await fixture.attempt(sandbox, "pair", `${type}`, "bind", `${path}-own`), "EPERM");
  }
  assert.equal(service.output(), "bound\n");
  assert.ok(!existsSync(`${path}-own`));
});

testEscape("with the network off an end of a stream or seqpacket pair reaches only its peer", async (fixture) => {
  const sandbox = workspaceWrite(fixture.directory);
  for (const type of [STREAM, SEQPACKET]) {
    const path = join(fixture.directory, `agent-${type}.sock`);
    await using service = await typedService(type, path);
    for (const flags of SOCKET_FLAGS)
      assert.equal(await fixture.attempt(sandbox, "socketpair", `${type | flags}`), "ok");
    const leave = (how: string, target = path) => fixture.attempt(sandbox, "pair", `${type}`, how, target);
    assert.equal(await leave("connect"), "EISCONN");
    assert.equal(await leave("connect-alone"), "EISCONN");
    // A seqpacket socket ignores the address and sends the datagram to its peer.
    assert.equal(await leave("sendto"), type === STREAM ? "EISCONN" : "ok");
    assert.equal(await leave("listen", `${path}-own`), "EINVAL");
    const client = connect(`${path}-own`);
    const [error] = await once(client, "error");
    assert.match(String(error), /ECONNREFUSED|EPROTOTYPE/, "an end that has a name takes no connection");
    assert.equal(service.output(), "bound\n");
  }
});

testEscape(
  "with the network off a command cannot use socket families that ignore network namespaces",
  async (fixture) => {
    const vsock = "40";
    const alg = "38";
    for (const family of [vsock, alg]) assert.equal(await fixture.attempt(readOnly(), "socket", family), "EPERM");
    assert.equal(await fixture.attempt(readOnly(), "socket", "2"), "ok", "its own loopback");
  },
);

testEscape("programs that need no network work without unix sockets", async (fixture) => {
  const { output, exitCode } = await fixture.script(
    readOnly(),
    `id -u; ${process.execPath} -e 'require("node:child_process").execFile("echo", ["child"], (e, out) => process.stdout.write(out))'`,
  );
  assert.deepEqual([output, exitCode], [`${fixture.user.uid}\nchild\n`, 0]);
});

testEscape(
  "the server's own unix socket cannot be reached from the sandbox, with the network off or on",
  async (fixture) => {
    const path = join(fixture.directory, "server.sock");
    assert.ok(existsSync(path));
    assert.notEqual(await fixture.attempt(readOnly(), "connect", path), "ok");
    for (const sandbox of [
      intent([READ_ROOT], { network: "enabled" }),
      workspaceWrite(fixture.directory, { network: "enabled" }),
    ])
      assert.match(await fixture.attempt(sandbox, "connect", path), /^(ECONNREFUSED|EACCES|ENOENT|ENOTSOCK)$/);
    // The socket stays unreachable after a command moved it.
    const inside = fixture.makeDirectory("a");
    const { output } = await fixture.script(
      workspaceWrite(fixture.directory, { network: "enabled" }),
      `cd "$1"; mv ../server.sock ../b.sock; ${attemptProgram()} connect ../b.sock; ${attemptProgram()} connect ../server.sock`.replace(
        "$1",
        inside,
      ),
    );
    assert.doesNotMatch(output, /^ok$/m);
  },
  { listen: "unix" },
);

testEscape(
  "with the network on a command reaches no abstract socket of the host where Landlock restricts them",
  async (fixture, t) => {
    const native = loadAddon();
    assert.ok(native.type === "loaded", "the native addon must be built");
    const skipReason = skipUnless(
      (native.addon.landlockAbi() ?? 0) >= 6,
      "this kernel has no Landlock that restricts abstract sockets",
    );
    if (skipReason) return t.skip(skipReason);
    using _abstract = await service(`\0${abstractName(fixture)}`, fixture.user.uid);
    const sandbox = intent([READ_ROOT], { network: "enabled" });
    assert.equal(await fixture.attempt(sandbox, "connect", `@${abstractName(fixture)}`), "EPERM");
    // Abstract sockets of the sandbox itself work.
    const server = 'const s=require("node:net").createServer(c=>c.end("inside\\n")).listen("\\0own");';
    const client =
      's.on("listening",()=>require("node:net").connect("\\0own").on("end",()=>s.close()).pipe(process.stdout))';
    const { output } = await fixture.run(sandbox, [process.execPath, "-e", `${server}${client}`]);
    assert.equal(output, "inside\n");
  },
);

testEscape(
  "with the network on the sockets of known host services and a user's own services are hidden",
  async (fixture) => {
    const sandbox = intent([READ_ROOT], { network: "enabled" });
    for (const path of [
      "/run/docker.sock",
      "/run/dbus/system_bus_socket",
      "/run/user/0/ssh-agent.socket",
      "/run/postgresql/.s.PGSQL.54321",
      "/tmp/.s.PGSQL.54321",
      "/run/k3s/containerd/containerd.sock",
      "/var/lib/lxd/unix.socket",
      "/var/snap/lxd/common/lxd/unix.socket",
      "/var/lib/incus/unix.socket",
      join(fixture.directory, ".docker/desktop/docker.sock"),
      join(fixture.directory, ".docker/run/docker.sock"),
      join(fixture.directory, "runtime/server.sock"),
    ]) {
      // If the host has this socket, the test uses it.
      if (existsSync(path)) {
        assert.notEqual(await fixture.attempt(sandbox, "connect", path), "ok", path);
        continue;
      }
      const made = mkdirSync(dirname(path), { recursive: true });
      try {
        using _service = await service(path, 0);
        assert.notEqual(await fixture.attempt(sandbox, "connect", path), "ok", path);
        if (path.startsWith("/run/"))
          assert.notEqual(await fixture.attempt(sandbox, "connect", `/var${path}`), "ok", `/var${path}`);
      } finally {
        if (made !== undefined) rmSync(made, { recursive: true });
      }
    }
  },
  {
    users: USERS.filter(({ uid }) => uid === 0),
    serveEnv: (directory) => ({ PROCWIRE_RUNTIME_DIR: join(directory, "runtime") }),
  },
);
