import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { nativeFileCandidates } from "../../../src/native/native-files.ts";
import { isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

// Node has no unix datagram sockets.
const RECEIVER = `
use Socket;
$| = 1;
socket(my $socket, AF_UNIX, SOCK_DGRAM, 0) or die $!;
bind($socket, sockaddr_un($ARGV[0])) or die $!;
print "bound\\n";
my $text;
while (defined recv($socket, $text, 4096, 0)) { print "[$text]\\n" }
`;

const [SUPERVISOR = ""] = nativeFileCandidates("supervisor");
const [WATCHDOG = ""] = nativeFileCandidates("watchdog");

const NO_PERL =
  spawnSync("perl", ["-MSocket", "-e", "1"]).status === 0
    ? false
    : "NOTIFICATIONS TO SYSTEMD ARE NOT TESTED: perl is missing";

const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR || NO_PERL };

test(
  "a supervisor notifies its service manager when a server is ready, is replaced and ends, and hides the notify socket from the server",
  OPTIONS,
  async () => {
    await notifications((env) => new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { env }).listening());
  },
);

test("a supervisor that replaced another one notifies the same service manager", OPTIONS, async () => {
  using directory = scratchDirectory();
  const copy = join(directory.path, "supervisor");
  copyFileSync(SUPERVISOR, copy);
  const command: [string, ...string[]] = [WATCHDOG, "--forward-state", "--", copy, "--upgradable", PROCWIRE, "serve"];
  const stderr = await notifications((env) =>
    new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { env, command }).listening(),
  );
  assert.match(stderr, /procwire: supervisor replaced by/);
});

/** Returns the server's stderr. */
async function notifications(start: (env: Record<string, string>) => Promise<ServeChild>): Promise<string> {
  using directory = scratchDirectory();
  const path = join(directory.path, "notify");
  const receiver = spawn("perl", ["-e", RECEIVER, path], { stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(receiver, "close");
  let received = "";
  receiver.stdout.setEncoding("utf8").on("data", (text: string) => {
    received += text;
  });
  try {
    await until("the receiver", () => received === "bound\n", closed);
    received = "";
    await using server = new SupervisedServer(await start({ NOTIFY_SOCKET: path }));
    const ready = "[READY=1]\n";
    await until("the first server is reported", () => received === ready, closed);
    await using client = await server.connect();
    const envPolicy = {
      inherit: "all" as const,
      ignoreDefaultExcludes: true,
      exclude: [],
      set: {},
      includeOnly: [],
    };
    const persistent = await client.start(persistentParams("p", 'echo "<$NOTIFY_SOCKET>"; read line', { envPolicy }));
    await waitFor(persistent, "<>\n");
    const former = await server.serverPid([persistent.pid]);
    server.serve.child.kill("SIGHUP");
    await until("the next server is reported", () => received.endsWith(`]\n${ready}`), closed);
    assert.match(received, /^\[READY=1\]\n\[RELOADING=1\nMONOTONIC_USEC=\d+\]\n\[READY=1\]\n$/);
    assert.equal(isAlive(former), false);
    await server.serve.stop();
    await until("the end is reported", () => received.endsWith(`]\n${ready}[STOPPING=1]\n`), closed);
    return server.serve.stderr;
  } finally {
    receiver.kill();
    await closed;
  }
}
