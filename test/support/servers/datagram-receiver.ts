/** A receiver of Unix datagrams, which Node cannot create itself. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";

const SCRIPT = `use IO::Socket::UNIX; use Socket; $| = 1;
my $s = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $ARGV[0]) or die "bind: $!";
print "ready\\n"; if ($ARGV[1]) { <STDIN>; exit }
while (defined $s->recv(my $m, 1 << 20)) { print "$m\\n" }`;

/** Returns why the receiver cannot be created on this host, or null. */
export function whyNoDatagramReceiver(): string | null {
  const { status } = spawnSync("perl", ["-MIO::Socket::UNIX", "-e", "1"]);
  return status === 0 ? null : "no perl with IO::Socket::UNIX";
}

export class DatagramReceiver implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #path: string;
  #text = "";

  private constructor(child: ChildProcess, path: string) {
    this.#child = child;
    this.#path = path;
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.#text += text;
    });
  }

  /** Binds the path. With `isBlocked` it receives nothing, so that its queue fills. */
  static async at(path: string, { isBlocked = false } = {}): Promise<DatagramReceiver> {
    const child = spawn("perl", ["-e", SCRIPT, path, ...(isBlocked ? ["blocked"] : [])], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const receiver = new DatagramReceiver(child, path);
    await once(child.stdout, "data");
    return receiver;
  }

  /** Datagrams so far. */
  get lines(): string[] {
    return this.#text.split("\n").slice(1, -1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
    rmSync(this.#path, { force: true });
  }
}
