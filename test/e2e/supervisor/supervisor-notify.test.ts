import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { isAlive, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
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

const NO_PERL =
  spawnSync("perl", ["-MSocket", "-e", "1"]).status === 0
    ? false
    : "NOTIFICATIONS TO SYSTEMD ARE NOT TESTED: perl is missing";

test("a supervisor notifies its service manager when a server is ready, is replaced and ends, and hides the notify socket from the server", {
  timeout: 600_000,
  skip: NO_SUPERVISOR || NO_PERL,
}, async () => {
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
    await using server = new SupervisedServer(
      await new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], {
        env: { NOTIFY_SOCKET: path },
      }).listening(),
    );
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
  } finally {
    receiver.kill();
    await closed;
  }
});
