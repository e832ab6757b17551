import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { withDeadline } from "../../src/async/deadline.ts";
import { communicate } from "../../src/exec/communicate.ts";
import type { ExecProcess, StartParams } from "../../src/exec/exec-process.ts";
import { lines } from "../../src/exec/lines.ts";
import { run } from "../../src/exec/run-program.ts";
import type { ContractBackend } from "./backends.ts";

const PATH = process.env.PATH ?? "/usr/bin:/bin";
/** Nothing here takes a tenth of it: what hangs is told as what it waited for. */
const PATIENCE_MS = 20_000;
const patiently = <T>(promise: Promise<T>, what: string) => withDeadline(promise, PATIENCE_MS, what);

export interface ClientContractOptions {
  /** The server knows no `process/closeStdin`. */
  noCloseStdin?: boolean;
}

/** What the client promises besides the events of a process, the same on every kind of host. */
export function clientContract(
  name: string,
  open: () => Promise<ContractBackend>,
  options: ClientContractOptions = {},
): void {
  describe(`the client: ${name}`, { timeout: 120_000 }, () => {
    let context: ContractBackend;
    let directory: string;
    let started = 0;
    before(async () => {
      context = await open();
      directory = await mkdtemp(join(tmpdir(), "procwire-client-"));
    });
    after(async () => {
      await context.close();
      await rm(directory, { recursive: true, force: true });
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
      await patiently(process.wait(), "the exit");
      for await (const _event of process.events());
      return process;
    };

    // ---- input

    it("gives a program its whole input, or refuses at once what cannot be done here", async () => {
      const running = run(context.backend, ["sort"], { cwd: "/", input: "b\na\n" });
      running.catch(() => undefined);
      const process = await context.backend.start(params(["sort"], { pipeStdin: true }));
      const talking = communicate(process, "d\nc\n");
      talking.catch(() => undefined);
      if (options.noCloseStdin) {
        const refusal = { message: "process/closeStdin is not supported by this server" };
        await assert.rejects(patiently(running, "the run"), refusal);
        await assert.rejects(patiently(talking, "the talk"), refusal);
      } else {
        assert.equal((await patiently(running, "the run")).stdout, "a\nb\n");
        assert.equal((await patiently(talking, "the talk")).stdout, "c\nd\n");
      }
      await process[Symbol.asyncDispose]();
    });

    it("is not bothered by a program that ends before it has read its input", async (t) => {
      if (options.noCloseStdin) return t.skip("the server cannot close stdin");
      const input = "x".repeat(2_000_000);
      const result = await patiently(run(context.backend, ["true"], { cwd: "/", input }), "the run");
      assert.equal(result.exitCode, 0);
    });

    it("says of a process that has exited that it takes no input", async () => {
      const process = await ended("exit 3", { pipeStdin: true });
      assert.deepEqual(await process.write(new Uint8Array(3)), { status: "stdinClosed" });
    });

    it("closes stdin once, and says so", async (t) => {
      if (options.noCloseStdin) return t.skip("the server cannot close stdin");
      await using open = await shell("cat", { pipeStdin: true });
      assert.deepEqual(await open.closeStdin(), { status: "accepted" });
      assert.deepEqual(await open.closeStdin(), { status: "stdinClosed" });
      await using without = await shell("sleep 100");
      assert.deepEqual(await without.closeStdin(), { status: "stdinClosed" });
    });

    // ---- time

    it("ends a run after its time and says that it was the time", async () => {
      const result = await patiently(
        run(context.backend, ["sleep", "100"], { cwd: "/", timeoutMs: 100 }),
        "the run",
      );
      assert.deepEqual([result.timedOut, result.reason], [true, "timeout"]);
      assert.notEqual(result.exitCode, 0);
    });

    it("says of a run that had the time that nothing ended it", async () => {
      const result = await run(context.backend, ["true"], { cwd: "/", timeoutMs: 60_000 });
      assert.deepEqual([result.timedOut, result.reason, result.exitCode], [false, "exited", 0]);
    });

    it("rejects a run that is given up with the reason it was given up for", async () => {
      const reason = new Error("no longer wanted");
      const running = run(context.backend, ["sleep", "100"], { cwd: "/", signal: AbortSignal.timeout(100) });
      await assert.rejects(patiently(running, "the run"), { name: "TimeoutError" });
      await assert.rejects(run(context.backend, ["true"], { signal: AbortSignal.abort(reason) }), reason);
    });

    // ---- output that is gone

    it("throws where lines are missing, or gives the gap between them, as asked", async () => {
      const process = await ended(
        "i=0; while [ $i -lt 40 ]; do head -c 100000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done; echo last",
      );
      await assert.rejects(async () => {
        for await (const _line of lines(process));
      }, /of output of process .* is gone \(events 1 to \d+\)/);
      const seen: string[] = [];
      for await (const line of lines(process, { onGap: "yield" }))
        seen.push(typeof line === "string" ? line : `gap from ${line.fromSeq}`);
      assert.equal(seen[0], "gap from 1");
      assert.equal(seen.at(-1), "last");
    });

    // ---- ids and ends

    it("refuses an id that a live process has, and takes it again afterwards", async () => {
      const { processId } = params([]);
      await using first = await shell("sleep 100", { processId });
      await assert.rejects(shell("true", { processId }), { message: `process ${processId} already exists` });
      assert.equal((await first.terminate()).running, true);
    });

    it("tells a known exit by wait and snapshot as by read, also when it is closed; starts nothing then", async () => {
      const own = await open();
      const process = await own.backend.start(params(["/bin/sh", "-c", "echo out; exit 7"]));
      await patiently(process.wait(), "the exit");
      for await (const _event of process.events());
      await own.close();
      assert.equal((await process.read()).exitCode, 7);
      assert.equal((await patiently(process.wait(), "the exit again")).exitCode, 7);
      const { exitCode, running, stdout } = await patiently(process.snapshot(), "the snapshot");
      assert.deepEqual([exitCode, running, new TextDecoder().decode(stdout)], [7, false, "out\n"]);
      await assert.rejects(own.backend.start(params(["true"])), /closed|disconnected/);
    });

    // ---- files

    it("lets several wait for paths at once, also below directories that are not there yet", async (t) => {
      const { files } = context;
      if (!files) return t.skip("no files here");
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
      await patiently(waits.one, "the first path");
      await mkdir(at("not/yet"), { recursive: true });
      await writeFile(at("not/yet/here"), "");
      await patiently(waits.deep, "the path below a missing parent");
      controller.abort(new Error("enough"));
      await assert.rejects(waits.aborted, { message: "enough" });
      await writeFile(at("two"), "");
      await patiently(waits.two, "the second path");
    });
  });
}
