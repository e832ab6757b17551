/** A keeper and a server of different versions: nothing is guessed, what cannot be read is told and ended. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { nativeFiles } from "../../../src/native/native-files.ts";
import { childrenOf, isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { KeptServe, keptParams, NO_KEEPER } from "../../support/servers/supervised-server.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const CC = process.env.CC ?? "cc";
const root = join(import.meta.dirname, "..", "..");
const OPTIONS = {
  timeout: 120_000,
  skip: NO_KEEPER || skipUnless(spawnSync(CC, ["--version"]).status === 0, "there is no C compiler"),
};

function compile(output: string, cwd: string, ...args: string[]): string {
  execFileSync(CC, ["-I.", ...args, "-o", output], { cwd, stdio: "pipe" });
  return output;
}

function otherServer(folder: string): string {
  const source = join(root, "test", "fixtures", "native", "other-server.c");
  return compile(join(folder, "other-server"), join(root, "native"), source);
}

/** The keeper, with one line of a header changed. */
function alteredKeeper(folder: string, header: string, line: string, changed: string): string {
  const copy = join(folder, "native");
  cpSync(join(root, "native"), copy, { recursive: true, filter: (path) => !path.endsWith("/build") });
  const path = join(copy, "programs", header);
  const text = readFileSync(path, "utf8");
  assert.ok(text.includes(`\n${line}\n`));
  writeFileSync(path, text.replace(line, changed));
  // As native/recipe.mjs has it.
  const recipe = readFileSync(join(copy, "recipe.mjs"), "utf8");
  const sources = /keeper: \[([^\]]*)\]/.exec(recipe)?.[1]?.match(/programs\/[\w-]+\.c/g) ?? [];
  return compile(join(folder, "keeper"), copy, ...sources);
}

function isGone(group: number): boolean {
  try {
    return !process.kill(-group, 0);
  } catch {
    return true;
  }
}

/** A program in place of a server below the real keeper. */
class OtherServer implements AsyncDisposable {
  readonly #child;
  readonly #ended: Promise<unknown>;
  stdout = "";
  stderr = "";

  constructor(program: string, mode: string) {
    const [keeper = ""] = nativeFiles("keeper");
    this.#child = spawn(keeper, ["--deaths", "10", program, mode], { stdio: ["ignore", "pipe", "pipe"] });
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
  "a process whose memory a keeper cannot read is told, ended with its group, and the server learns it",
  OPTIONS,
  async () => {
    using folder = scratchDirectory();
    const program = otherServer(folder.path);
    for (const [mode, why] of [
      ["memory", "its memory is of version 2, and this keeper reads version 1"],
      ["damaged", "its memory is damaged"],
    ] as const) {
      await using server = new OtherServer(program, mode);
      const group = Number(await server.says(/group (\d+)/));
      await server.says(/refused/);
      assert.ok(server.stderr.includes(`procwire: a process cannot be kept and is ended: ${why}\n`));
      await until("its group to be gone", () => isGone(group));
      assert.equal(childrenOf(server.pid).length, 1, "only the server is left");
    }
  },
);

test(
  "a process of a server that died with the keeper's messages unread is kept all the same",
  OPTIONS,
  async () => {
    using folder = scratchDirectory();
    const program = otherServer(folder.path);
    await using server = new OtherServer(program, "unread");
    // It has stopped the keeper.
    const kept = Number(await server.says(/group (\d+)/));
    await until("the server to be dead", () => childrenOf(server.pid).filter(isAlive).length === 1);
    process.kill(server.pid, "SIGCONT");
    await server.says(/(inherits 1)/);
    await until("everything to end with it", () => !isAlive(kept));
  },
);

test(
  "how a process ended is recorded although that was before the keeper knew that it is to be kept",
  OPTIONS,
  async () => {
    using folder = scratchDirectory();
    await using server = new OtherServer(otherServer(folder.path), "brief");
    assert.equal(await server.says(/(ended .*)/), "ended 1 with 5");
  },
);

test(
  "a server that speaks another version of the messages learns it at once, and the log says so",
  OPTIONS,
  async () => {
    using folder = scratchDirectory();
    const keeper = alteredKeeper(
      folder.path,
      "keeper-packets.h",
      "#define KEEPER_PROTOCOL 1u",
      "#define KEEPER_PROTOCOL 2u",
    );
    const command: [string, ...string[]] = [keeper, PROCWIRE, "serve"];
    await using server = new ServeChild(["--listen", "ws://127.0.0.1:0", "--keep"], { command });
    assert.equal((await server.exited).code, 1);
    assert.match(
      server.stderr,
      /the server speaks version 1 of the keeper's messages, and this keeper version 2; restart the whole service/,
    );
    assert.match(
      server.stderr,
      /the keeper above this server cannot be asked: its messages are of another version/,
    );
  },
);

test(
  "a server whose keeper reads another version of what is kept refuses to start it, and serves on",
  OPTIONS,
  async () => {
    using folder = scratchDirectory();
    const keeper = alteredKeeper(
      folder.path,
      "kept-memory.h",
      "#define KEPT_VERSION 1u",
      "#define KEPT_VERSION 2u",
    );
    await using server = await KeptServe.below(keeper);
    await using client = await server.connect();
    await assert.rejects(client.start(keptParams("kept", "exec sleep 300")), {
      message:
        'lifetime "kept" is refused: the keeper above this server reads version 2 of what is kept and this server writes version 1; restart the whole service, which ends what is kept',
    });
    const other = await client.start(keptParams("other", "exit 7", { lifetime: "server" }));
    assert.equal((await other.wait()).exitCode, 7);
  },
);

test("a client is told why a process was ended that the keeper could not keep", OPTIONS, async () => {
  using folder = scratchDirectory();
  // What the keeper says of itself is right, and what it gets is not what it expects.
  const keeper = alteredKeeper(
    folder.path,
    "kept-memory.h",
    "#define KEPT_MAGIC 0x6b707770u",
    "#define KEPT_MAGIC 0x6b707771u",
  );
  await using server = await KeptServe.below(keeper);
  await using client = await server.connect();
  for (const tty of [false, true]) {
    const process = await client.start(keptParams(`p${tty}`, "setsid sleep 300 & wait", { tty }));
    const pid = process.pid ?? 0;
    const events: string[] = [];
    for await (const event of process.events())
      if (event.type !== "output") events.push(event.type === "failed" ? event.message : event.type);
    assert.deepEqual(events, [
      "the process was ended, because the keeper above the server cannot keep it: the server's log says why",
    ]);
    await until(
      "all that it started to be gone",
      () => !isAlive(pid) && childrenOf(server.keeperPid).length === 1,
    );
  }
  assert.match(
    server.serve.stderr,
    /a process cannot be kept and is ended: its memory is not that of a kept process/,
  );
  // The server goes on.
  const other = await client.start(keptParams("other", "echo here; read line", { lifetime: "session" }));
  await waitFor(other, "here\n");
});
