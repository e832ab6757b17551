/** The host's side of the attempts of the sandbox matrix: files, sockets, servers and processes. */
import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Server } from "node:net";
import { dirname, join } from "node:path";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { forwardPortBack } from "../../src/client/node/port-forward.ts";
import { attemptProgram, Fixture } from "../../test/escape/inside.ts";
import { policy } from "../../test/support/network/network-config.ts";
import { changeOwner, commandAs, type User } from "../../test/support/system/users.ts";
import type { Place, WayOut } from "./sandbox-ways.ts";

const TOKEN = "matrix-secret-token-of-the-server-that-is-long-enough";
const REPLACE_INTERVAL_MS = 50;
/** Environment of every program that runs a sandbox. */
export const SECRET_VARIABLE = { MATRIX_SECRET: "matrix-variable" };

type Ports = Pick<Place, "forwardedPort" | "proxyPort" | "serverPort">;

/** A server, a forwarded port and a network proxy of one user, for all attempts. */
export class MatrixHost implements AsyncDisposable {
  readonly fixture: Fixture;
  readonly #stack: AsyncDisposableStack;
  readonly #ports: Ports;
  static #count = 0;

  private constructor(fixture: Fixture, stack: AsyncDisposableStack, ports: Ports) {
    this.fixture = fixture;
    this.#stack = stack;
    this.#ports = ports;
  }

  static async open(user: User): Promise<MatrixHost> {
    const stack = new AsyncDisposableStack();
    const fixture = stack.use(
      await Fixture.prepare(user, {
        env: SECRET_VARIABLE,
        headers: { authorization: `Bearer ${TOKEN}` },
        serveArgs: (directory) => {
          mkdirSync(join(directory, "secrets"));
          writeFileSync(join(directory, "secrets", "token"), TOKEN);
          changeOwner(user, directory);
          return [
            "--allow-forward",
            "--ws-auth",
            "capability-token",
            "--ws-token-file",
            join(directory, "secrets/token"),
          ];
        },
      }),
    );
    chmodSync(fixture.directory, 0o755);
    const { url } = fixture.server;
    const client = stack.use(await NodeExecServerClient.connectWebSocket({ url, authToken: TOKEN }));
    const service = await listen(createServer((socket) => socket.on("error", () => undefined).end("matrix-secret\n")));
    stack.defer(() => void service.close());
    const target = { host: "localhost", port: portOf(service) };
    const forward = stack.use(await forwardPortBack(client, { port: 0, target }));
    await fixture.client.start("proxied", ["/bin/sh", "-c", "echo $HTTP_PROXY; exec sleep 10000"], {
      networkProxy: { proxy: policy({ domains: { "127.0.0.1": "allow" }, allowLocalBinding: true }) },
    });
    await fixture.client.outputContains("proxied", "\n");
    const proxy = new URL(fixture.client.output("proxied").trim());
    return new MatrixHost(fixture, stack, {
      forwardedPort: forward.port,
      proxyPort: Number(proxy.port),
      serverPort: Number(new URL(url).port),
    });
  }

  /** Token file of the server. */
  get tokenFile(): string {
    return join(this.fixture.directory, "secrets", "token");
  }

  /** Creates the host's side of one attempt. */
  async prepare(way: WayOut, { own, credential }: Pick<Place, "own" | "credential">): Promise<Place & AsyncDisposable> {
    const { fixture } = this;
    const { user } = fixture;
    const number = MatrixHost.#count++;
    await using stack = new AsyncDisposableStack();
    const workspace = fixture.makeDirectory(`work-${number}`);
    const outside = fixture.makeDirectory(`outside-${number}`);
    for (const name of [".git", own ?? ".git"]) fixture.makeDirectory(`work-${number}/${name}`);
    writeFileSync(join(outside, "file"), "original\n");
    if (way.variable === "PATH")
      for (const name of ["bwrap", "sh"])
        writeFileSync(join(workspace, name), `#!/bin/bash\n/usr/bin/touch ${outside}/ran\n`, { mode: 0o755 });

    const temporaryName = `procwire-matrix-${process.pid}-${number}`;
    for (const directory of ["/tmp", "/dev/shm"]) {
      const path = join(directory, temporaryName);
      writeFileSync(path, "matrix-secret\n");
      stack.defer(() => rmSync(path));
    }

    const sharedMemoryKey = process.pid * 1000 + number;
    const argv = [...commandAs(user), "perl", "-e", HOST_PROCESS, outside, `${sharedMemoryKey}`];
    const [file = "", ...args] = argv;
    const env = { PATH: process.env.PATH, HOST_SECRET: "1" };
    const hostProcess = spawn(file, args, { stdio: ["pipe", "pipe", "inherit"], env });
    await once(hostProcess.stdout, "data");
    stack.defer(async () => {
      const exit = once(hostProcess, "exit");
      hostProcess.stdin.end();
      await exit;
    });
    changeOwner(user, outside);

    const tcp = createHttpServer((_, response) => response.end("matrix-secret\n"));
    const tcp6 = createServer((socket) => socket.end());
    const abstract = createServer((socket) => socket.end());
    const bus = createServer((socket) => socket.end());
    const serviceSocket = `/run/user/${user.uid}/${temporaryName}`;
    stack.defer(makeParents(serviceSocket));
    await listen(tcp);
    await listen(tcp6, { host: "::1" });
    await listen(abstract, { path: `\0${temporaryName}` });
    await listen(bus, { path: serviceSocket });
    chmodSync(serviceSocket, 0o777);
    for (const server of [tcp, tcp6, abstract, bus]) stack.defer(() => void server.close());
    stack.defer(() => tcp.closeAllConnections());

    let datagrams = 0;
    const udp = createSocket("udp4").bind(0, "127.0.0.1");
    udp.on("message", () => datagrams++);
    await once(udp, "listening");
    stack.defer(() => void udp.close());

    if (way.replacesCredential && credential !== null) stack.defer(replaceRepeatedly(user, credential));
    const disposables = stack.move();
    return {
      ...{ workspace, outside, own, credential, serviceSocket, temporaryName, sharedMemoryKey, token: TOKEN },
      ...this.#ports,
      hostPid: hostProcess.pid ?? 0,
      port: portOf(tcp),
      port6: portOf(tcp6),
      udpPort: udp.address().port,
      receivedDatagrams: () => datagrams,
      socket: join(outside, "stream"),
      abstractName: temporaryName,
      datagram: join(outside, "datagram"),
      program: attemptProgram(),
      [Symbol.asyncDispose]: () => disposables.disposeAsync(),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fixture.client.call("process/terminate", { processId: "proxied" });
    await this.#stack.disposeAsync();
  }
}

/** Replaces a file by rename until the returned function restores it. */
function replaceRepeatedly(user: User, path: string): () => void {
  const replace = (text: string) => {
    writeFileSync(`${path}.new`, text, { mode: 0o644 });
    changeOwner(user, `${path}.new`);
    renameSync(`${path}.new`, path);
  };
  const timer = setInterval(() => replace(`replaced-${TOKEN}`), REPLACE_INTERVAL_MS);
  return () => {
    clearInterval(timer);
    replace(TOKEN);
  };
}

/** Creates the missing directories above a path. Returns a function that removes them if they are empty. */
function makeParents(path: string): () => void {
  const missing: string[] = [];
  for (let directory = dirname(path); !existsSync(directory); directory = dirname(directory)) missing.push(directory);
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  return () => {
    try {
      for (const directory of missing) rmdirSync(directory);
    } catch {
      // Another program uses the directory.
    }
  };
}

async function listen(server: Server, at: { host?: string; path?: string } = { host: "127.0.0.1" }): Promise<Server> {
  server.listen(at.path === undefined ? { port: 0, ...at } : at);
  await once(server, "listening");
  return server;
}

function portOf(server: Server): number {
  const address = server.address();
  return address !== null && typeof address === "object" ? address.port : 0;
}

/** Listens on a stream and a datagram socket, reads a named pipe and owns shared memory, until its input ends. */
const HOST_PROCESS = `
use Socket; use POSIX; use IPC::SysV qw(IPC_CREAT IPC_RMID);
my ($dir, $key) = @ARGV;
socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; bind($s, sockaddr_un("$dir/stream")) or die; listen($s, 9) or die;
socket(my $d, AF_UNIX, SOCK_DGRAM, 0) or die; bind($d, sockaddr_un("$dir/datagram")) or die;
chmod 0777, "$dir/stream", "$dir/datagram";
mkfifo("$dir/pipe", 0666) or die; open(my $p, "+<", "$dir/pipe") or die;
my $memory = shmget($key, 4096, IPC_CREAT | 0666) // die;
$| = 1; print "ready\\n"; <STDIN>;
shmctl($memory, IPC_RMID, 0);
`;
