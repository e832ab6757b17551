import { existsSync, readdirSync } from "node:fs";
import type { Child, ChildSpec, WaitStatus } from "../../src/local/child.ts";
import type { NativeAddon } from "../../src/native/addon.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { nativeProcessTable, nativeSpawn } from "../../src/native/native-process.ts";

/** Skip reason of addon tests if the addon is missing. */
export const NO_ADDON: string | false = (() => {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? false : `THE NATIVE SPAWNER IS NOT TESTED: ${loaded.why}`;
})();

export function addon(): NativeAddon {
  const loaded = loadAddon();
  if (loaded.type === "missing") throw new Error(loaded.why);
  return loaded.addon;
}

export type RecordedEvent =
  | { type: "output"; stream: string; chunk: Uint8Array }
  | { type: "exit"; exit: WaitStatus }
  | { type: "close" };

/** A process started directly through the addon, with all its events. */
export interface Started {
  child: Child;
  recorded: RecordedEvent[];
  exit: Promise<WaitStatus>;
  close: Promise<void>;
  drained(): Promise<void>;
  /** Output so far, of one stream or of all. */
  output(stream?: string): Buffer;
  /** Output that was emitted before the exit. */
  outputBeforeExit(): Buffer;
  /** Resolves once the output so far satisfies the condition. */
  until(condition: (output: Buffer) => boolean): Promise<void>;
}

export const TERMINAL = { rows: 24, cols: 80 };

export async function startChild(
  argv: string[],
  options: Partial<ChildSpec> = {},
  onOutput: (stream: string, chunk: Uint8Array) => void = () => undefined,
): Promise<Started> {
  const recorded: RecordedEvent[] = [];
  const exit = Promise.withResolvers<WaitStatus>();
  const close = Promise.withResolvers<void>();
  let drained = Promise.withResolvers<void>();
  const checks = new Set<() => void>();
  const collect = (events: RecordedEvent[], stream?: string) =>
    Buffer.concat(
      events.flatMap((event) =>
        event.type === "output" && (stream === undefined || event.stream === stream) ? [event.chunk] : [],
      ),
    );
  const child = await nativeSpawn(addon())(
    {
      file: argv[0] ?? "",
      argv,
      cwd: "/",
      env: { PATH: "/usr/bin:/bin" },
      terminal: null,
      pipeStdin: false,
      descriptors: [],
      ...options,
    },
    {
      output(stream, chunk) {
        recorded.push({ type: "output", stream, chunk });
        onOutput(stream, chunk);
        for (const check of checks) check();
      },
      exit(how) {
        recorded.push({ type: "exit", exit: how });
        exit.resolve(how);
      },
      close() {
        recorded.push({ type: "close" });
        close.resolve();
      },
      drain: () => drained.resolve(),
      failed: (error) => close.reject(error),
    },
  );
  return {
    child,
    recorded,
    exit: exit.promise,
    close: close.promise,
    drained() {
      drained = Promise.withResolvers<void>();
      return drained.promise;
    },
    output: (stream) => collect(recorded, stream),
    outputBeforeExit: () =>
      collect(
        recorded.slice(
          0,
          recorded.findIndex((event) => event.type === "exit"),
        ),
      ),
    until: (condition) =>
      new Promise((resolve) => {
        const check = () => {
          if (!condition(collect(recorded))) return;
          checks.delete(check);
          resolve();
        };
        checks.add(check);
        check();
      }),
  };
}

/** Runs `task` this many times, some concurrently, to provoke races. */
export async function manyRuns(runs: number, atOnce: number, task: (run: number) => Promise<void>): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      while (next < runs) await task(next++);
    }),
  );
}

/** True while it is listed, also as a zombie. */
export const processExists = (pid: number) => existsSync(`/proc/${pid}/stat`);

/** True while it runs; a zombie does not. */
export function isRunning(pid: number): boolean {
  const entry = nativeProcessTable(addon()).entry(pid);
  return entry !== null && !entry.zombie;
}

/** Kills the remaining processes of a POSIX session, also after a failed test. */
export function endSession(started: Started): void {
  const table = nativeProcessTable(addon());
  for (const name of readdirSync("/proc")) {
    const entry = /^\d+$/.test(name) ? table.entry(Number(name)) : null;
    if (entry?.session === started.child.pid) table.signal(entry, 9);
  }
}
