/**
 * A supervisor and a server of different versions report and end each process whose state they cannot read.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { nativeFileCandidates } from "../../../src/native/native-files.ts";
import { childrenOf, isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import {
  buildAlteredSupervisor,
  compile,
  NO_COMPILER,
  NO_SUPERVISOR,
  persistentParams,
  SupervisedServer,
} from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

const root = join(import.meta.dirname, "..", "..", "..");
const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR || NO_COMPILER };

function otherServer(directory: string): string {
  const source = join(root, "test", "fixtures", "native", "other-server.c");
  return compile(join(directory, "other-server"), join(root, "native"), source);
}

function isGone(group: number): boolean {
  try {
    return !process.kill(-group, 0);
  } catch {
    return true;
  }
}

/** A program that replaces the server below the real supervisor. */
class OtherServer implements AsyncDisposable {
  readonly #child;
  readonly #ended: Promise<unknown>;
  stdout = "";
  stderr = "";

  constructor(program: string, mode: string) {
    const [supervisor = ""] = nativeFileCandidates("supervisor");
    this.#child = spawn(supervisor, ["--max-backoff-ms", "0", program, mode], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#ended = once(this.#child, "close");
    this.#child.stdout.setEncoding("utf8").on("data", (text: string) => {
      this.stdout += text;
    });
    this.#child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.stderr += text;
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async says(pattern: RegExp): Promise<string> {
    await until(`${pattern}`, () => pattern.test(this.stdout), this.#ended);
    return pattern.exec(this.stdout)?.[1] ?? "";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill();
    this.#child.kill("SIGCONT");
    await this.#ended;
  }
}

test(
  "a process whose state segment the supervisor cannot read is reported to the server and killed with its group",
  OPTIONS,
  async () => {
    using directory = scratchDirectory();
    const program = otherServer(directory.path);
    for (const [mode, why] of [
      ["memory", "state segment version is 2, supported version is 1"],
      ["damaged", "state segment is corrupt"],
      ["outside", "state segment is corrupt"],
    ] as const) {
      await using server = new OtherServer(program, mode);
      const group = Number(await server.says(/group (\d+)/));
      await server.says(/rejected 1/);
      assert.ok(server.stderr.includes(`procwire: cannot persist process: ${why}; process killed\n`));
      await until("its group to be gone", () => isGone(group));
      assert.equal(childrenOf(server.pid).length, 1, "only the server is left");
    }
  },
);

test("a process survives a server that died before it read the supervisor's messages", OPTIONS, async () => {
  using directory = scratchDirectory();
  const program = otherServer(directory.path);
  await using server = new OtherServer(program, "unread");
  // This server has stopped the supervisor with SIGSTOP.
  const persistent = Number(await server.says(/group (\d+)/));
  await until("the server to be dead", () => childrenOf(server.pid).filter(isAlive).length === 1);
  process.kill(server.pid, "SIGCONT");
  await server.says(/(inherits 1)/);
  await until("everything to end with it", () => !isAlive(persistent));
});

test(
  "an exit status is recorded even if the process exited before the supervisor knew that it is persistent",
  OPTIONS,
  async () => {
    using directory = scratchDirectory();
    await using server = new OtherServer(otherServer(directory.path), "brief");
    assert.equal(await server.says(/(ended .*)/), "ended 1 with 5");
  },
);

test(
  "a server with another supervisor protocol version exits at once, and the log reports both versions",
  OPTIONS,
  async () => {
    using directory = scratchDirectory();
    const supervisor = buildAlteredSupervisor(
      directory.path,
      "supervisor-protocol.h",
      "#define SUPERVISOR_PROTOCOL 1u",
      "#define SUPERVISOR_PROTOCOL 2u",
    );
    const command: [string, ...string[]] = [supervisor, PROCWIRE, "serve"];
    await using server = new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { command });
    assert.equal((await server.exited).code, 1);
    assert.match(
      server.stderr,
      /cannot talk to the server: its supervisor protocol version is 1, supported version is 2; restart the service/,
    );
    assert.match(server.stderr, /cannot connect to the supervisor: supervisor protocol version differs/);
  },
);

test(
  "a server whose supervisor reads another segment version rejects persistent processes and keeps serving",
  OPTIONS,
  async () => {
    using directory = scratchDirectory();
    const supervisor = buildAlteredSupervisor(
      directory.path,
      "state-segment-layout.h",
      "#define SEGMENT_VERSION 1u",
      "#define SEGMENT_VERSION 2u",
    );
    await using server = await SupervisedServer.below(supervisor);
    await using client = await server.connect();
    await assert.rejects(client.start(persistentParams("persistent", "exec sleep 300")), {
      message:
        'lifetime "persistent" is not available: the supervisor reads state segment version 2, but this server writes version 1; restart the service, which terminates persistent processes',
    });
    const other = await client.start(persistentParams("other", "exit 7", { lifetime: "server" }));
    assert.equal((await other.wait()).exitCode, 7);
  },
);

test(
  "a client receives the reason why the supervisor killed a process that it could not persist",
  OPTIONS,
  async () => {
    using directory = scratchDirectory();
    // The supervisor reports its own version correctly, but receives a version that it does not expect.
    const supervisor = buildAlteredSupervisor(
      directory.path,
      "state-segment-layout.h",
      "#define SEGMENT_MAGIC 0x6b707770u",
      "#define SEGMENT_MAGIC 0x6b707771u",
    );
    await using server = await SupervisedServer.below(supervisor);
    await using client = await server.connect();
    for (const tty of [false, true]) {
      const process = await client.start(persistentParams(`p${tty}`, "setsid sleep 300 & wait", { tty }));
      const pid = process.pid ?? 0;
      const events: string[] = [];
      for await (const event of process.events())
        if (event.type !== "output") events.push(event.type === "failed" ? event.message : event.type);
      assert.deepEqual(events, [
        "process killed: the supervisor could not persist it; see the server's log for the cause",
      ]);
      await until(
        "all that it started to be gone",
        () => !isAlive(pid) && childrenOf(server.supervisorPid).length === 1,
      );
    }
    assert.match(server.serve.stderr, /cannot persist process: not a state segment; process killed/);
    // The server keeps serving.
    const other = await client.start(persistentParams("other", "echo here; read line", { lifetime: "session" }));
    await waitFor(other, "here\n");
  },
);
