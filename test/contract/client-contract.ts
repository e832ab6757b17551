import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import { SpawnedProcess } from "../../src/client/node/spawned-process.ts";
import type { ExecProcess, StartParams } from "../../src/exec/exec-process.ts";
import { communicate } from "../../src/exec/run/communicate.ts";
import { lines } from "../../src/exec/run/lines.ts";
import { run } from "../../src/exec/run/run-program.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import type { ContractBackend } from "./backends.ts";

const PATH = process.env.PATH ?? "/usr/bin:/bin";
/** Ten times longer than any step takes, so that a hang fails with the name of the step. */
const STEP_TIMEOUT_MS = 60_000;
const withStepTimeout = <T>(promise: Promise<T>, what: string) => withDeadline(promise, STEP_TIMEOUT_MS, what);

const FAMILY = { name: "ExecServerError" };

/** Error of a server that cannot close stdin. */
const NO_CLOSE_STDIN = {
  ...FAMILY,
  ...{ code: "UNSUPPORTED", rpcCode: -32601, method: "process/closeStdin" },
  message: "process/closeStdin is not supported by this server",
};

/** Discards all input. */
async function drained(things: AsyncIterable<unknown>): Promise<void> {
  for await (const _thing of things);
}

export interface ClientContractOptions {
  /** The server does not support `process/closeStdin`. */
  noCloseStdin?: boolean;
  /** The backend alone, without the files of its host. */
  noFiles?: boolean;
}

/** Contract of the client beyond process events, for every kind of host. */
export function clientContract(
  name: string,
  open: () => Promise<ContractBackend>,
  options: ClientContractOptions = {},
): void {
  describe(`the client: ${name}`, { timeout: 600_000 }, () => {
    let context: ContractBackend;
    let directory: string;
    let started = 0;
    before(async () => {
      context = await open();
      directory = await mkdtemp(join(tmpdir(), "procwire-client-"));
    });
    after(async () => {
      await context.close();
      await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    });

    const params = (argv: string[], more: Partial<StartParams> = {}): StartParams => ({
      processId: `${name}-client-${++started}`,
      argv,
      cwd: "/",
      env: { PATH },
      tty: false,
      ...more,
    });
    const shell = (script: string, more?: Partial<StartParams>): Promise<ExecProcess> =>
      context.backend.start(params(["/bin/sh", "-c", script], more));
    const ended = async (script: string, more?: Partial<StartParams>): Promise<ExecProcess> => {
      const process = await shell(script, more);
      await withStepTimeout(process.wait(), "the exit");
      for await (const _event of process.events());
      return process;
    };

    // ---- input

    test("writes the whole input, or rejects at once if the host cannot close stdin", async () => {
      const running = run(context.backend, ["sort"], { cwd: "/", input: "b\na\n" });
      running.catch(() => undefined);
      const process = await context.backend.start(params(["sort"], { pipeStdin: true }));
      const talking = communicate(process, "d\nc\n");
      talking.catch(() => undefined);
      if (options.noCloseStdin) {
        await assert.rejects(withStepTimeout(running, "the run"), NO_CLOSE_STDIN);
        await assert.rejects(withStepTimeout(talking, "the talk"), NO_CLOSE_STDIN);
        // The rejection does not wait for unread input.
        await using deaf = await context.backend.start(params(["sleep", "1000"], { pipeStdin: true }));
        const unread = communicate(deaf, new Uint8Array(8_000_000));
        await assert.rejects(withStepTimeout(unread, "the refusal"), NO_CLOSE_STDIN);
      } else {
        assert.equal((await withStepTimeout(running, "the run")).stdout, "a\nb\n");
        assert.equal((await withStepTimeout(talking, "the talk")).stdout, "c\nd\n");
      }
      await process[Symbol.asyncDispose]();
    });

    test("tolerates a process that exits before it has read its input", async () => {
      const input = "x".repeat(2_000_000);
      const running = withStepTimeout(run(context.backend, ["true"], { cwd: "/", input }), "the run");
      if (options.noCloseStdin) await assert.rejects(running, NO_CLOSE_STDIN);
      else assert.equal((await running).exitCode, 0);
    });

    test("reports stdinClosed after the exit", async () => {
      const process = await ended("exit 3", { pipeStdin: true });
      assert.deepEqual(await process.write(new Uint8Array(3)), { status: "stdinClosed" });
    });

    test("closes stdin once, and reports stdinClosed afterwards", async () => {
      await using open = await shell("cat", { pipeStdin: true });
      if (options.noCloseStdin) {
        for (let call = 0; call < 2; call++)
          await assert.rejects(withStepTimeout(open.closeStdin(), "the refusal"), NO_CLOSE_STDIN);
        // The rejection had no effect: stdin is still open.
        assert.deepEqual(await open.write(new TextEncoder().encode("still open\n")), { status: "accepted" });
        await withStepTimeout(waitFor(open, "still open"), "the echo");
        return;
      }
      assert.deepEqual(await open.closeStdin(), { status: "accepted" });
      assert.deepEqual(await open.closeStdin(), { status: "stdinClosed" });
      await using without = await shell("sleep 100");
      assert.deepEqual(await without.closeStdin(), { status: "stdinClosed" });
    });

    // ---- time

    test("terminates a run after its timeout with reason timeout", async () => {
      const result = await withStepTimeout(
        run(context.backend, ["sleep", "100"], { cwd: "/", timeoutMs: 2000 }),
        "the run",
      );
      assert.deepEqual([result.timedOut, result.reason], [true, "timeout"]);
      assert.notEqual(result.exitCode, 0);
    });

    test("reports timedOut false for a run that finished in time", async () => {
      const result = await run(context.backend, ["true"], { cwd: "/", timeoutMs: 60_000 });
      assert.deepEqual([result.timedOut, result.reason, result.exitCode], [false, "exited", 0]);
    });

    test("rejects an aborted run with the signal's reason", async () => {
      const reason = new Error("no longer wanted");
      const running = run(context.backend, ["sleep", "100"], { cwd: "/", signal: AbortSignal.timeout(100) });
      await assert.rejects(withStepTimeout(running, "the run"), { name: "TimeoutError" });
      await assert.rejects(run(context.backend, ["true"], { signal: AbortSignal.abort(reason) }), reason);
    });

    test("rejects every aborted call with the signal's reason, and makes no call if already aborted", async () => {
      await using process = await shell("echo out; sleep 1000", { pipeStdin: true });
      await waitFor(process, "out");
      const reason = { not: "even an error" };
      const isReason = (thrown: unknown) => thrown === reason;
      const { files, backend } = context;
      const late = new AbortController();
      const { signal } = late;
      await using sleeper = await shell("sleep 1000", { pipeStdin: true });
      const waiting: Promise<unknown>[] = [
        process.wait({ signal }),
        process.read({ afterSeq: 1_000_000, waitMs: STEP_TIMEOUT_MS, signal }),
        waitFor(process, "never", { signal }),
        drained(process.events({ signal })),
        drained(lines(process, { signal })),
        ...(options.noCloseStdin ? [] : [communicate(sleeper, "", { signal })]),
        run(backend, ["sleep", "1000"], { cwd: "/", signal }),
        ...(files ? [files.waitForPath(join(directory, "never"), { signal })] : []),
      ].map((call: Promise<unknown>) => assert.rejects(withStepTimeout(call, "the end"), isReason));
      late.abort(reason);
      await Promise.all(waiting);

      const aborted = AbortSignal.abort(reason);
      const path = join(directory, "not-written");
      const calls: Promise<unknown>[] = [
        process.write(new Uint8Array(1), { signal: aborted }),
        process.closeStdin({ signal: aborted }),
        process.resize({ rows: 1, cols: 1 }, { signal: aborted }),
        process.signal("interrupt", { signal: aborted }),
        process.terminate({ type: "force" }, { signal: aborted }),
        process.snapshot({ signal: aborted }),
        backend.list({ signal: aborted }),
        backend.start({ ...params(["touch", path]), signal: aborted }),
        ...(files
          ? [
              files.writeFile(path, "x", { signal: aborted }),
              files.readFile("/etc/passwd", { signal: aborted }),
              files.exists("/", { signal: aborted }),
              files.remove("/no/such", { signal: aborted }),
              files.walk(directory, { signal: aborted }),
              files.open("/etc/passwd", "read", { signal: aborted }),
            ]
          : []),
      ];
      for (const call of calls) await assert.rejects(withStepTimeout(call, "the refusal"), isReason);
      assert.equal((await process.read()).exited, false);
      assert.equal(existsSync(path), false);
      assert.equal((await process.terminate()).running, true);
    });

    // ---- bytes and errors

    test("returns the output of a run as text or bytes", async () => {
      const argv = ["/bin/sh", "-c", "printf '\\377\\000\\303\\274'; printf '\\376' >&2"];
      const asBytes = await run(context.backend, argv, { cwd: "/", encoding: "buffer" });
      assert.deepEqual([[...asBytes.stdout], [...asBytes.stderr]], [[0xff, 0, 0xc3, 0xbc], [0xfe]]);
      const asText = await run(context.backend, argv, { cwd: "/" });
      assert.deepEqual([asText.stdout, asText.stderr], ["\ufffd\0\u00fc", "\ufffd"]);
    });

    test("pipes output to Node and web streams, and to another process", async () => {
      const script = "head -c 300000 /dev/zero | tr '\\0' x; echo end";
      const source = new SpawnedProcess(await shell(script), [script]);
      const whole = `${"x".repeat(300_000)}end\n`;
      const node = new PassThrough();
      const [piped] = await Promise.all([text(node), source.pipe(node)]);
      assert.equal(piped, whole);
      const decoder = new TransformStream<Uint8Array, Uint8Array>();
      const [streamed] = await Promise.all([text(decoder.readable), source.pipe(decoder.writable)]);
      assert.equal(streamed, whole);
      const controller = new AbortController();
      const sleeper = new SpawnedProcess(await shell("sleep 1000"), []);
      const endless = new PassThrough().on("error", () => undefined);
      const pipes = [endless, new TransformStream().writable].map((target) =>
        assert.rejects(sleeper.pipe(target, { signal: controller.signal }), (reason) => reason === "enough"),
      );
      controller.abort("enough");
      await Promise.all(pipes);
      await using target = await shell("wc -c", { pipeStdin: true });
      if (options.noCloseStdin) {
        // The pipe ends at once, not after the last byte of a source that may never end.
        await assert.rejects(withStepTimeout(sleeper.pipe(target), "the refusal"), NO_CLOSE_STDIN);
        await using open = await shell("head -c 300004 | wc -c", { pipeStdin: true });
        await source.pipe(open, { end: false });
        await withStepTimeout(waitFor(open, "300004"), "the count");
      } else {
        await source.pipe(target);
        assert.equal((await communicate(target)).stdout.trim(), "300004");
      }
      await sleeper.terminate();
    });

    test("rejects process calls with ExecServerError: code, JSON-RPC code and the caller's line", async () => {
      const argv = ["no-such-program", "x"];
      const noProgram = { code: "ENOENT", argv, method: "process/start", rpcCode: -32603 };
      await assert.rejects(context.backend.start(params(argv)), { ...FAMILY, ...noProgram });
      await assert.rejects(context.backend.start(params([])), {
        ...FAMILY,
        ...{ code: "EINVAL", argv: [], method: "process/start", rpcCode: -32602 },
      });
      const process = await shell("sleep 1000");
      const refused = (method: string, rpcCode: number) => ({ ...FAMILY, code: "EINVAL", method, rpcCode });
      if (!options.noCloseStdin) {
        await assert.rejects(process.signal("SIGNOPE"), refused("process/signal", -32602));
        await assert.rejects(process.resize({ rows: 1, cols: 1 }), refused("process/resize", -32600));
      }
      const badPattern = process.wait({ until: { type: "output", pattern: "(" } });
      await assert.rejects(badPattern, { ...FAMILY, code: "EINVAL", method: "process/wait" });
      await assert.rejects(waitFor(process, "never", { timeoutMs: 20 }), { ...FAMILY, code: "TIMEOUT" });
      await process.terminate();
      await assert.rejects(waitFor(process, "never"), { ...FAMILY, code: "ENDED" });
      for (const call of [() => context.backend.start(params(argv)), () => process.signal("SIGNOPE")])
        await assert.rejects(call(), ({ stack = "" }: Error) => /client-contract\.ts/.test(stack));
    });

    test("rejects file calls with ExecServerError and the path", async () => {
      const { files } = context;
      assert.equal(files === undefined, options.noFiles ?? false);
      if (!files) return;
      const missing = join(directory, "missing");
      await assert.rejects(files.readFile(missing), {
        ...FAMILY,
        ...{ code: "ENOENT", path: missing, method: "fs/readFile", rpcCode: -32004 },
        message: `no such file or directory: ${missing}`,
      });
      await assert.rejects(files.readFile(directory), { ...FAMILY, path: directory, method: "fs/readFile" });
      await assert.rejects(files.writeFile(join(missing, "x"), ""), { ...FAMILY, code: "ENOENT" });
      await assert.rejects(files.readText("relative"), { ...FAMILY, code: "EINVAL", path: "relative" });
      await assert.rejects(files.open(missing), { ...FAMILY, code: "ENOENT", method: "fs/open" });
      await assert.rejects(files.readFile(missing), (error: Error) => {
        assert.match(error.stack ?? "", /client-contract\.ts/);
        return true;
      });
    });

    // ---- evicted output

    test("throws at a gap between lines, or yields it with onGap", async () => {
      const process = await ended(
        "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done; echo last",
      );
      await assert.rejects(drained(lines(process)), {
        code: "GAP",
        message: /of output of process .* is no longer retained \(events 1 to \d+\)/,
      });
      const seen: string[] = [];
      for await (const line of lines(process, { onGap: "yield" }))
        seen.push(typeof line === "string" ? line : `gap from ${line.fromSeq}`);
      assert.equal(seen[0], "gap from 1");
      assert.equal(seen.at(-1), "last");
    });

    // ---- ids and exits

    test("rejects the id of a live process, and accepts it after the exit", async () => {
      const { processId } = params([]);
      await using first = await shell("sleep 100", { processId });
      await assert.rejects(shell("true", { processId }), { message: `process ${processId} already exists` });
      assert.equal((await first.terminate()).running, true);
    });

    test("reports a known exit by wait, snapshot and read after close, and rejects new starts", async () => {
      const own = await open();
      const process = await own.backend.start(params(["/bin/sh", "-c", "echo out; exit 7"]));
      await withStepTimeout(process.wait(), "the exit");
      for await (const _event of process.events());
      await own.close();
      assert.equal((await process.read()).exitCode, 7);
      assert.equal((await withStepTimeout(process.wait(), "the exit again")).exitCode, 7);
      const { exitCode, running, stdout } = await withStepTimeout(process.snapshot(), "the snapshot");
      assert.deepEqual([exitCode, running, new TextDecoder().decode(stdout)], [7, false, "out\n"]);
      await assert.rejects(own.backend.start(params(["true"])), /closed|disconnected/);
    });

    // ---- files

    test("waits for several paths at once, also below missing directories", async () => {
      const { files } = context;
      assert.equal(files === undefined, options.noFiles ?? false);
      if (!files) return;
      const at = (path: string) => join(directory, path);
      const controller = new AbortController();
      const waits = {
        one: files.waitForPath(at("one")),
        two: files.waitForPath([at("never"), at("two")]),
        deep: files.waitForPath(at("not/yet/here")),
        aborted: files.waitForPath(at("never"), { signal: controller.signal }),
      };
      waits.aborted.catch(() => undefined);
      await writeFile(at("one"), "");
      await withStepTimeout(waits.one, "the first path");
      await mkdir(at("not/yet"), { recursive: true });
      await writeFile(at("not/yet/here"), "");
      await withStepTimeout(waits.deep, "the path below a missing parent");
      controller.abort(new Error("enough"));
      await assert.rejects(waits.aborted, { message: "enough" });
      await writeFile(at("two"), "");
      await withStepTimeout(waits.two, "the second path");
    });
  });
}
