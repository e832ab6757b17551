import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { after, before, describe, type TestContext, test } from "node:test";
import { copyFiles } from "../../../src/client/copy/copy-files.ts";
import type { CopyTotals } from "../../../src/client/copy/copy-types.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { Environment } from "../../../src/host/local-environment.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import type { ListeningServer } from "../../../src/server/listen/websocket-gateway.ts";
import { Scratch } from "../../files/scratch.ts";
import { FaultProxy } from "../../support/faults/fault-proxy.ts";
import { SmallDisk, whyNoSmallDisk } from "../../support/faults/small-disk.ts";
import { ENTRY, startCli } from "../../support/servers/run-cli.ts";
import { ServeChild } from "../../support/servers/serve.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;
const noSmallDisk = whyNoSmallDisk();

let server: ExecServer;
let listening: ListeningServer;
let here: Environment;
before(async () => {
  server = new ExecServer(createLocalHost());
  listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  here = await Environment.create(null);
});
after(async () => {
  await here.close();
  await listening.close();
  await server.close();
});

async function connect(t: TestContext, url = listening.url) {
  const client = await NodeExecServerClient.connectWebSocket({ url, reconnect: { firstDelayMs: 5 } });
  t.after(() => client.close());
  return client;
}

const sha256 = (path: string) => createHash("sha256").update(readFileSync(path)).digest("hex");

/** Lists names, types, modes, times, contents and links below a directory. */
function describeTree(root: string): Record<string, unknown> {
  const all: Record<string, unknown> = {};
  for (const name of readdirSync(root, { recursive: true, encoding: "latin1" })) {
    const path = Buffer.from(`${root}/${name}`, "latin1");
    const found = lstatSync(path);
    if (found.isSymbolicLink()) all[name] = { link: readlinkSync(path) };
    else {
      const time = Math.round(found.mtimeMs);
      const content = found.isFile() ? readFileSync(path).toString("base64") : null;
      all[name] = { mode: found.mode, time, content };
    }
  }
  return all;
}

/** Creates a tree with unusual names, modes, times and links. */
function makeTree(scratch: Scratch): string {
  const root = scratch.directory("tree");
  scratch.file("tree/empty");
  scratch.file("tree/run.sh", "#!/bin/sh\n", 0o755);
  scratch.file("tree/secret", "s", 0o600);
  scratch.file("tree/large", randomBytes(3 * MIB + 17));
  scratch.file("tree/deep/er/name with blank #?%41.txt", "blank");
  writeFileSync(Buffer.concat([Buffer.from(`${root}/bad`), Buffer.from([0xff])]), "no UTF-8");
  scratch.link("tree/link", "deep/er");
  scratch.link("tree/dangling", "/nowhere/at all");
  utimesSync(join(root, "run.sh"), 1_600_000_000.123, 1_600_000_000.123);
  scratch.directory("tree/locked");
  scratch.file("tree/locked/inside", "i", 0o444);
  chmodSync(join(root, "locked"), 0o555);
  utimesSync(join(root, "deep/er"), 1_500_000_000, 1_500_000_000);
  return root;
}

describe("copyFiles", { timeout: 600_000 }, () => {
  for (const direction of ["to", "from"] as const) {
    test(`preserves names, modes, times and links of a tree ${direction} a server`, async (t) => {
      const scratch = new Scratch(t);
      const tree = makeTree(scratch);
      const far = await connect(t);
      const [from, to] = direction === "to" ? [here.files, far.files] : [far.files, here.files];
      const destination = scratch.path("copied/below");
      const result = await copyFiles({ files: from, path: tree }, { files: to, path: destination });
      assert.deepEqual(result.problems, []);
      assert.equal(result.files, 9);
      assert.deepEqual(describeTree(destination), describeTree(tree));
      // Restores permissions for the cleanup.
      for (const root of [tree, destination]) chmodSync(join(root, "locked"), 0o755);
    });
  }

  test("scans directories concurrently, also below a root with one directory", async (t) => {
    const scratch = new Scratch(t);
    for (let index = 0; index < 8; index++) scratch.file(`tree/only/d${index}/file`, "x");
    const tree = scratch.path("tree");
    const { files } = await connect(t);
    const scan = files.scan.bind(files);
    let [active, peak] = [0, 0];
    t.mock.method(files, "scan", async (...args: Parameters<typeof scan>) => {
      peak = Math.max(peak, ++active);
      await flushEventLoop();
      return scan(...args).finally(() => active--);
    });
    await copyFiles({ files, path: tree }, { files: here.files, path: scratch.path("copy") });
    assert.deepEqual(describeTree(scratch.path("copy")), describeTree(tree));
    assert.ok(peak > 1, `at most ${peak} scans at a time`);
  });

  test("reports existing files as unchanged, by time or by content", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    scratch.file("tree/a", "aaa");
    scratch.file("tree/b", "bbb");
    const copy = (checksum = false) =>
      copyFiles(
        { files: here.files, path: scratch.path("tree") },
        { files: far.files, path: scratch.path("copy") },
        { checksum },
      );
    assert.equal((await copy()).unchanged, 0);
    const { ino } = statSync(scratch.path("copy/a"));
    assert.equal((await copy()).unchanged, 2);
    assert.equal(statSync(scratch.path("copy/a")).ino, ino);
    // Different content with the same size and time: only comparing the content shows it.
    const { mtimeMs } = statSync(scratch.path("tree/a"));
    scratch.file("copy/a", "axa");
    utimesSync(scratch.path("copy/a"), mtimeMs / 1000, mtimeMs / 1000);
    assert.equal((await copy()).unchanged, 2);
    assert.equal((await copy(true)).unchanged, 1);
    assert.equal(readFileSync(scratch.path("copy/a"), "utf8"), "aaa");
  });

  test("follows or skips links as configured, and reports a dangling link", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    scratch.file("tree/a", "aaa");
    scratch.link("tree/to-a", "a");
    scratch.link("tree/dangling", "/nowhere");
    const copy = (name: string, links: "follow" | "skip") =>
      copyFiles(
        { files: far.files, path: scratch.path("tree") },
        { files: here.files, path: scratch.path(name) },
        { links },
      );
    assert.deepEqual((await copy("followed", "follow")).problems, [
      { path: scratch.path("tree/dangling"), message: "the target of the link does not exist" },
    ]);
    assert.equal(lstatSync(scratch.path("followed/to-a")).isFile(), true);
    assert.deepEqual((await copy("skipped", "skip")).problems, []);
    assert.deepEqual(readdirSync(scratch.path("skipped")), ["a"]);
  });

  test("skips special files, and replaces neither directories nor devices", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    scratch.fifo("tree/pipe");
    scratch.file("tree/a", "aaa");
    scratch.file("tree/b", "bbb");
    scratch.directory("copy/a");
    scratch.fifo("copy/b");
    const { problems } = await copyFiles(
      { files: here.files, path: scratch.path("tree") },
      { files: far.files, path: scratch.path("copy") },
    );
    const inTheWay = (name: string) => `cannot replace ${scratch.path("copy", name)}: it is not a file or a link`;
    assert.deepEqual(
      problems.sort((one, other) => (one.path < other.path ? -1 : 1)),
      [
        { path: scratch.path("tree/a"), message: inTheWay("a") },
        { path: scratch.path("tree/b"), message: inTheWay("b") },
        {
          path: scratch.path("tree/pipe"),
          message: "not a file, directory or link; skipped",
        },
      ],
    );
    assert.deepEqual(readdirSync(scratch.path("copy")).sort(), ["a", "b"]);
  });

  test("keeps the old destination until the copy is complete", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    scratch.file("large", randomBytes(20 * MIB));
    scratch.file("there", "old");
    const seen = new Set<string>();
    await copyFiles(
      { files: here.files, path: scratch.path("large") },
      { files: far.files, path: scratch.path("there") },
      {
        onProgress: ({ files }) => void (files === 0 && seen.add(readFileSync(scratch.path("there"), "utf8"))),
      },
    );
    assert.deepEqual([...seen], ["old"]);
    assert.equal(sha256(scratch.path("there")), sha256(scratch.path("large")));
    assert.deepEqual(readdirSync(scratch.root).sort(), ["large", "there"]);
  });

  for (const direction of ["to", "from"] as const) {
    test(`copies a large file ${direction} a server over a connection that is cut repeatedly`, async (t) => {
      const scratch = new Scratch(t);
      await using proxy = await FaultProxy.before(listening.url);
      // Each connection carries a few more blocks, so that cuts occur everywhere, also at the end.
      const toward = direction === "to" ? "toServer" : "toClient";
      proxy.faultFor = (number) =>
        number > 30 ? {} : { cutAfter: { bytes: 400_000 + number * 500_000, direction: toward } };
      const far = await connect(t, proxy.url);
      scratch.file("large", randomBytes(24 * MIB + 1));
      const [from, to] = direction === "to" ? [here.files, far.files] : [far.files, here.files];
      let last: CopyTotals | null = null;
      const result = await copyFiles(
        { files: from, path: scratch.path("large") },
        { files: to, path: scratch.path("copy") },
        {
          onProgress: (tally) => {
            last = { ...tally };
          },
        },
      );
      assert.ok(proxy.cuts >= 5, `${proxy.cuts} cuts`);
      assert.equal(result.bytes, 24 * MIB + 1);
      assert.deepEqual({ ...result, problems: undefined }, { ...(last ?? {}), problems: undefined });
      assert.equal(sha256(scratch.path("copy")), sha256(scratch.path("large")));
      assert.deepEqual(readdirSync(scratch.root).sort(), ["copy", "large"]);
    });
  }

  test("copies 1,000 small files over a connection that is cut repeatedly", async (t) => {
    const scratch = new Scratch(t);
    await using proxy = await FaultProxy.before(listening.url);
    proxy.faultFor = (number) => (number > 20 ? {} : { cutAfter: { bytes: 30_000 * number, direction: "toServer" } });
    const far = await connect(t, proxy.url);
    for (let at = 0; at < 1000; at++) scratch.file(`tree/${at % 10}/${at}`, `content ${at}`);
    const result = await copyFiles(
      { files: here.files, path: scratch.path("tree") },
      { files: far.files, path: scratch.path("copy") },
    );
    assert.ok(proxy.cuts >= 3, `${proxy.cuts} cuts`);
    assert.deepEqual(result.problems, []);
    assert.equal(result.files, 1000);
    assert.deepEqual(describeTree(scratch.path("copy")), describeTree(scratch.path("tree")));
  });

  test("resumes from a partial file, but only of the same source", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    scratch.file("large", randomBytes(40 * MIB));
    const copy = async (stopAt: number) => {
      const interrupted = new AbortController();
      const kept: string[] = [];
      let first: number | null = null;
      const copied = copyFiles(
        { files: here.files, path: scratch.path("large") },
        { files: far.files, path: scratch.path("copy") },
        {
          signal: interrupted.signal,
          onPartialKept: (path) => kept.push(path),
          onProgress: ({ bytes }) => {
            first ??= bytes;
            if (bytes >= stopAt) interrupted.abort(new Error("enough"));
          },
        },
      );
      const outcome = await copied.then(
        () => "copied",
        (error: Error) => error.message,
      );
      return { outcome, kept, first: first ?? 0 };
    };
    const interrupted = await copy(10 * MIB);
    assert.equal(interrupted.outcome, "enough");
    assert.equal(existsSync(scratch.path("copy")), false);
    const [part] = interrupted.kept;
    assert.ok(part);
    assert.ok(statSync(part).size >= 10 * MIB);
    // A partial file that is not a prefix of the source is not resumed, such as after a crash.
    const whole = readFileSync(part);
    whole.fill(0, whole.length - 100);
    writeFileSync(part, whole);
    assert.equal((await copy(10 * MIB)).first, 0);
    const resumed = await copy(Number.POSITIVE_INFINITY);
    assert.equal(resumed.outcome, "copied");
    assert.ok(resumed.first >= 10 * MIB, `began at ${resumed.first}`);
    assert.equal(sha256(scratch.path("copy")), sha256(scratch.path("large")));
    assert.deepEqual(readdirSync(scratch.root).sort(), ["copy", "large"]);
  });

  test("rejects a source that changes during the copy, and leaves no file", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    for (const change of ["shorter", "other"] as const) {
      scratch.file("large", randomBytes(20 * MIB));
      const copied = copyFiles(
        { files: far.files, path: scratch.path("large") },
        { files: here.files, path: scratch.path("copy") },
        {
          onProgress: () => {
            if (change === "shorter") truncateSync(scratch.path("large"), 100);
            else utimesSync(scratch.path("large"), 1, 1);
          },
        },
      );
      await assert.rejects(copied, { code: "CHANGED" });
      assert.deepEqual(readdirSync(scratch.root), ["large"]);
    }
  });

  test("ends the copy of a tree if the host is lost, and reports the partial file", async (t) => {
    const scratch = new Scratch(t);
    await using child = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    const far = await NodeExecServerClient.connectWebSocket({
      url: child.url,
      reconnect: { deadlineMs: 300, firstDelayMs: 5 },
    });
    t.after(() => far.close());
    scratch.file("tree/large", randomBytes(64 * MIB));
    const kept: string[] = [];
    const copied = copyFiles(
      { files: here.files, path: scratch.path("tree") },
      { files: far.files, path: scratch.path("copy") },
      {
        onPartialKept: (path) => kept.push(path),
        onProgress: ({ bytes }) => void (bytes > 5 * MIB && child.child.kill("SIGKILL")),
      },
    );
    await assert.rejects(copied, { code: "DISCONNECTED" });
    assert.equal(kept.length, 1);
    assert.ok(existsSync(kept[0] ?? ""));
  });

  test("reports a full disk, and leaves no partial file", {
    skip: skipUnless(noSmallDisk === null, noSmallDisk ?? ""),
  }, async (t) => {
    const scratch = new Scratch(t);
    const directory = scratch.directory("disk");
    await using disk = await SmallDisk.at(directory, 2 * MIB);
    const socket = scratch.path("socket");
    const [program = "", ...words] = disk.under("/");
    await using child = await new ServeChild(["--listen", `unix://${socket}`], {
      command: [program, ...words, process.execPath, ENTRY, "serve"],
    }).listening();
    const far = await connect(t, child.url);
    scratch.file("large", randomBytes(6 * MIB));
    const small = scratch.directory("small");
    for (let at = 0; at < 30; at++) writeFileSync(join(small, `${at}`), randomBytes(100_000));
    for (const name of ["large", "small"]) {
      const copied = copyFiles(
        { files: here.files, path: scratch.path(name) },
        { files: far.files, path: `${directory}/copy-${name}` },
      );
      await assert.rejects(copied, { code: "ENOSPC", message: /^No space left on device \(os error 28\): / });
      // Partial files in flight are removed a moment later.
      await until("no part is left", () =>
        readdirSync(disk.directory, { recursive: true, encoding: "utf8" }).every((path) => !path.includes("procwire")),
      );
    }
  });

  test("copies a directory with more entries than fit into one page", async (t) => {
    const scratch = new Scratch(t);
    const far = await connect(t);
    const count = 4096 + 10;
    const tree = scratch.directory("tree");
    for (let at = 0; at < count; at++) symlinkSync(String(at), join(tree, `link-${at}`));
    const result = await copyFiles({ files: far.files, path: tree }, { files: here.files, path: scratch.path("copy") });
    assert.equal(result.files, count);
    assert.equal(readdirSync(scratch.path("copy")).length, count);
  });
});

describe("procwire cp", { timeout: 600_000 }, () => {
  const cp = (scratch: Scratch, args: string[], stdin?: string) =>
    startCli(["cp", "--connect", listening.url, ...args], {
      cwd: scratch.root,
      ...(stdin !== undefined && { stdin }),
    });

  test("copies a file to a name, into a directory, and several into one directory", async (t) => {
    const scratch = new Scratch(t);
    scratch.file("a", "aaa");
    scratch.file("b", "bbb");
    mkdirSync(scratch.path("there"));
    for (const args of [
      ["a", `:${scratch.path("named")}`],
      ["a", `:${scratch.path("there")}`],
      ["a", `:${scratch.path("made/")}`],
      ["a", "b", `:${scratch.path("both")}`],
      [`:${scratch.path("a")}`, "back"],
    ]) {
      const { code, stderr, stdout } = await cp(scratch, args).ended;
      assert.deepEqual({ code, stderr, stdout }, { code: 0, stderr: "", stdout: "" });
    }
    for (const name of ["named", "there/a", "made/a", "both/a", "back"])
      assert.equal(readFileSync(scratch.path(name), "utf8"), "aaa", name);
    assert.equal(readFileSync(scratch.path("both/b"), "utf8"), "bbb");
  });

  test("copies from stdin and to stdout, completely or not at all", async (t) => {
    const scratch = new Scratch(t);
    const text = "line\n".repeat(1_000_000);
    assert.equal((await cp(scratch, ["-", `:${scratch.path("in")}`], text).ended).code, 0);
    assert.equal(readFileSync(scratch.path("in"), "utf8"), text);
    const { stdout } = await cp(scratch, [`:${scratch.path("in")}`, "-"]).ended;
    assert.equal(stdout, text);
    const proc = await cp(scratch, [":/proc/self/stat", "-"]).ended;
    assert.match(proc.stdout, /^\d+ \(/);
    const refused = await cp(scratch, ["-", `:${scratch.path("no/such/folder")}`], "").ended;
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /^procwire cp: no such file or directory: /);
    assert.deepEqual(readdirSync(scratch.root), ["in"]);
  });

  test("keeps the partial file on interruption, reports it, and resumes from it", async (t) => {
    const scratch = new Scratch(t);
    scratch.file("large", randomBytes(96 * MIB));
    const running = cp(scratch, ["large", `:${scratch.path("copy")}`]);
    const partOf = () => readdirSync(scratch.root).find((name) => name.endsWith(".procwire-part"));
    await until(
      "a part of some size",
      () => {
        const part = partOf();
        return part !== undefined && statSync(scratch.path(part)).size > 2 * MIB;
      },
      running.ended,
    );
    running.child.kill("SIGINT");
    const { code, stderr } = await running.ended;
    assert.equal(code, 130);
    const part = partOf();
    assert.ok(part);
    assert.equal(
      stderr,
      `procwire cp: interrupted\nprocwire cp: partial file kept in ${scratch.path(part)}; run the same command again to resume\n`,
    );
    // The same inode shows that the copy resumed from this file.
    const { ino } = statSync(scratch.path(part));
    assert.equal((await cp(scratch, ["large", `:${scratch.path("copy")}`]).ended).code, 0);
    assert.equal(statSync(scratch.path("copy")).ino, ino);
    assert.equal(sha256(scratch.path("copy")), sha256(scratch.path("large")));
  });

  test("draws a progress bar only on a terminal and without --quiet", async (t) => {
    const scratch = new Scratch(t);
    scratch.file("large", randomBytes(2 * MIB));
    const drawn = async (...options: string[]): Promise<string> => {
      const words = ["cp", ...options, "--connect", listening.url];
      const child = await here.getExecBackend().start({
        processId: `cp${options.length}`,
        argv: [process.execPath, ENTRY, ...words, "large", `:${scratch.path(`copy${options.length}`)}`],
        cwd: scratch.root,
        env: { PATH: process.env.PATH ?? "" },
        tty: true,
        size: { rows: 24, cols: 120 },
      });
      let text = "";
      for await (const event of child.events())
        if (event.type === "output") text += Buffer.from(event.chunk).toString();
      return text;
    };
    const shown = await drawn();
    assert.match(shown, /\r\x1b\[K\[#* *\] +\d+% {2}\S+ \S+ of 2\.0 MiB, /);
    assert.match(shown, /\r\x1b\[K1 file, 2\.0 MiB in \d+\.\d s\r\n$/);
    assert.equal(await drawn("--quiet"), "");
    const { stdout, stderr } = await cp(scratch, ["large", `:${scratch.path("piped")}`]).ended;
    assert.deepEqual({ stdout, stderr }, { stdout: "", stderr: "" });
  });

  test("reports invalid arguments", async (t) => {
    const scratch = new Scratch(t);
    for (const [args, message] of [
      [["a"], "give a SOURCE and a DESTINATION; one of them must start with a colon"],
      [["a", "b"], "both paths are local; one of them must start with a colon, such as `:/tmp/file`"],
      [[":a", ":b"], "both paths are on the server; use `procwire run -- cp`"],
      [["a", ":b", ":c"], "all sources must be local, or all on the server"],
      [["--links", "no", "a", ":b"], "unsupported --links `no`; expected keep, follow or skip"],
    ] as const) {
      const { code, stderr } = await cp(scratch, [...args]).ended;
      assert.deepEqual({ code, stderr }, { code: 2, stderr: `procwire cp: ${message}; see \`procwire cp --help\`\n` });
    }
  });

  test("reports each file that could not be copied, and copies the others", async (t) => {
    const scratch = new Scratch(t);
    scratch.fifo("tree/pipe");
    scratch.file("tree/a", "aaa");
    const { code, stderr } = await cp(scratch, ["tree", `:${scratch.path("copy")}`]).ended;
    assert.equal(code, 1);
    const why = "not a file, directory or link; skipped";
    assert.equal(stderr, `procwire cp: ${scratch.path("tree/pipe")}: ${why}\n`);
    assert.equal(readFileSync(scratch.path("copy/a"), "utf8"), "aaa");
    renameSync(scratch.path("copy/a"), scratch.path("copy/b"));
  });
});
