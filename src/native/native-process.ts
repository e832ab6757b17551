import type { TerminalSize, TtyState } from "../exec/exec-process.ts";
import type { Child, ChildEnds, ChildEvents, ChildInput, SpawnChild, TreeCgroup } from "../local/child.ts";
import { NO_ENDS } from "../local/child.ts";
import { errnoText, unreadableOutput } from "../local/errno-text.ts";
import type { KeptChildSide, KeptMachine } from "../local/kept-child.ts";
import { knownTrees } from "../local/known-trees.ts";
import type { LocalMachine } from "../local/platform.ts";
import { spawnErrorFromErrno } from "../local/spawn-error.ts";
import { serverCgroup } from "../local/tree/cgroups.ts";
import type { ProcessEntry, ProcessTable } from "../local/tree/process-table.ts";
import { type NativeAddon, type NativeChild, type NativeEntries, NativeEventError } from "./addon.ts";
import { keptSide } from "./native-persistent-child.ts";

/** This machine through the addon. */
export function nativeMachine(native: NativeAddon, keeper: KeptMachine | null = null): LocalMachine {
  let unheld = (_errno: number) => {};
  return {
    keeper,
    spawn: nativeSpawn(native, (errno) => unheld(errno)),
    table: nativeProcessTable(native),
    reaper: {
      setSubreaper: (on) => void native.setSubreaper(on),
      reap: (pid) => native.reap(pid),
    },
    canLimitResources: true,
    openCgroups: ({ keptMarks, onFailure }) => {
      const directory = serverCgroup();
      if (directory === null) return;
      unheld = (errno) => {
        unheld = () => {};
        onFailure(errnoText(errno));
      };
      const errno = native.openTreeGroups(directory, Float64Array.from(keptMarks));
      if (errno !== 0) unheld(errno);
    },
    degraded: [],
  };
}

const NO_DESCRIPTORS = new Int32Array(0);
const NO_LIMITS = new Float64Array(0);

/** Starts programs through the addon. */
export function nativeSpawn(native: NativeAddon, onUnheld = (_errno: number) => {}): SpawnChild {
  return (spec, events) =>
    new Promise((resolve, reject) => {
      let started: StartedChild | null = null;
      const issued = native.spawn(
        spec.file,
        block(spec.argv),
        block(Object.entries(spec.env).map(([name, value]) => `${name}=${value}`)),
        spec.cwd,
        spec.terminal !== null,
        spec.pipeStdin,
        spec.terminal?.rows ?? 0,
        spec.terminal?.cols ?? 0,
        (errno, syscall, path, child, pid, startTime, pts, pipes, mark, group) => {
          if (errno !== 0 || mark !== issued) knownTrees.forget(issued);
          // Its mark was announced and could not be set.
          if (errno === 0 && mark === 0 && issued !== 0) knownTrees.begins(mark);
          if (errno !== 0) {
            reject(spawnErrorFromErrno(errno, syscall, path));
            return;
          }
          if (typeof child !== "object" || typeof pid !== "number" || !Array.isArray(pipes)) {
            reject(new NativeEventError("start", "done", [child, pid, startTime, pts, pipes]));
            return;
          }
          if (group < 0) onUnheld(-group);
          const cgroup = spec.limits?.tree ?? (group > 0 ? new LeasedCgroup(native, group) : null);
          const identity = { pid, startTime, mark, cgroup };
          const isKept = spec.kept !== undefined;
          started = new StartedChild(native, child, identity, { pipes, pts: pts < 0 ? null : pts }, isKept);
          resolve(started);
        },
        (number, first, second) => {
          const event = native.childEvents[number];
          if (event === "close") started?.forgetEnds();
          if (event === "exit") knownTrees.leaderExited(issued);
          if (!tellChild(events, event, first, second))
            events.broken(new NativeEventError("child", event ?? number, [first, second]));
        },
        spec.descriptors.length === 0 ? NO_DESCRIPTORS : Int32Array.from(spec.descriptors),
        spec.limits ? Float64Array.from(spec.limits.resources) : NO_LIMITS,
        spec.limits ? block(spec.limits.cgroups) : "",
        spec.directory ?? -1,
        spec.kept?.record ?? "",
        spec.kept?.maxOutputBytes ?? Number.POSITIVE_INFINITY,
        !spec.limits?.tree,
      );
      // Known at once: a descendant may already be an orphan when the start is answered.
      knownTrees.begins(issued);
    });
}

export class LeasedCgroup implements TreeCgroup {
  readonly #native: NativeAddon;
  readonly #lease: number;

  constructor(native: NativeAddon, lease: number) {
    this.#native = native;
    this.#lease = lease;
  }

  pids(): number[] {
    return this.#native.treeGroupPids(this.#lease);
  }

  kill(): void {
    this.#native.killTreeGroup(this.#lease);
  }
}

export class StartedChild implements Child {
  readonly kept: KeptChildSide | null;
  readonly pid: number;
  readonly startTime: number;
  readonly mark: number;
  readonly cgroup: TreeCgroup | null;
  readonly input: ChildInput;
  readonly #native: NativeAddon;
  readonly #child: NativeChild;
  #ends: ChildEnds;

  constructor(
    native: NativeAddon,
    child: NativeChild,
    { pid, startTime, mark, cgroup = null }: Pick<Child, "pid" | "startTime" | "mark" | "cgroup">,
    ends: ChildEnds,
    isKept: boolean,
  ) {
    this.kept = isKept ? keptSide(native, child) : null;
    this.#native = native;
    this.#child = child;
    this.pid = pid;
    this.startTime = startTime;
    this.mark = mark;
    this.cgroup = cgroup;
    this.#ends = ends;
    this.input = new StartedInput(native, child, isKept);
  }

  get ends(): ChildEnds {
    return this.#ends;
  }

  forgetEnds(): void {
    this.#ends = NO_ENDS;
  }

  pause(): void {
    this.#native.pause(this.#child);
  }

  resume(): void {
    this.#native.resume(this.#child);
  }

  resize({ rows, cols }: TerminalSize): void {
    this.#native.resize(this.#child, rows, cols);
  }

  ttyState(): TtyState | null {
    const state = this.#native.terminalState(this.#child);
    return state ? { rows: state[0], cols: state[1], echo: state[2], canonical: state[3] } : null;
  }

  signalGroup(signal: number): boolean {
    return this.#native.signalGroup(this.#child, signal);
  }

  cut(): void {
    this.forgetEnds();
    this.#native.cut(this.#child);
  }
}

/** A class, because a literal with a getter costs kilobytes of hidden shape for each child. */
class StartedInput implements ChildInput {
  readonly #native: NativeAddon;
  readonly #child: NativeChild;

  /** What is queued here is lost with this program, so a kept process's input counts as taken once none is queued. */
  readonly maxQueuedBytes: number | undefined;

  constructor(native: NativeAddon, child: NativeChild, isKept: boolean) {
    this.#native = native;
    this.#child = child;
    this.maxQueuedBytes = isKept ? 0 : undefined;
  }

  write(bytes: Uint8Array, writeId?: string): void {
    this.#native.write(this.#child, bytes, writeId);
  }

  knows(writeId: string): boolean {
    return this.#native.knowsWrite(this.#child, writeId);
  }

  get queuedBytes(): number {
    return this.#native.queuedInput(this.#child);
  }

  get writtenBytes(): number {
    return this.#native.writtenInput(this.#child);
  }

  close(): void {
    this.#native.closeStdin(this.#child);
  }

  get straight(): object {
    return this.#child;
  }

  refuse(): void {
    this.#native.refuseInput(this.#child);
  }
}

const STREAMS = { stdout: "stdout", stderr: "stderr", terminal: "pty" } as const;

/** Handles one event; false when it is not one, or its values are wrong. */
export function tellChild(
  events: ChildEvents,
  event: string | undefined,
  first: unknown,
  second: unknown,
): boolean {
  switch (event) {
    case "stdout":
    case "stderr":
    case "terminal":
      if (!(first instanceof Uint8Array)) return false;
      events.output(STREAMS[event], first);
      return true;
    case "exit":
      if (typeof first !== "number" || typeof second !== "number") return false;
      events.exit(second > 0 ? { type: "signal", signal: second } : { type: "code", code: first });
      return true;
    case "close":
      events.close();
      return true;
    case "drain":
      events.drain();
      return true;
    case "unreadable":
      if (typeof first !== "number") return false;
      events.broken(unreadableOutput(first));
      return true;
    case "refused":
      events.broken(
        new Error(
          "the process was ended, because the keeper above the server cannot keep it: the server's log says why",
        ),
      );
      return true;
    default:
      return false;
  }
}

/** Parts, each ended by a zero byte: one value crosses into the addon instead of one per part. */
function block(parts: readonly string[]): string {
  return parts.map((part) => `${part}\0`).join("");
}

const NUMBERS_PER_ENTRY = 6;

/** The process table through the addon: microseconds, where reading /proc from JavaScript takes milliseconds. */
export function nativeProcessTable(native: NativeAddon): ProcessTable {
  return {
    descendants: (pid) => decode(native.descendants(pid)),
    orphanPids: () => native.orphanPids(),
    children: (parents) =>
      [...parents].flatMap((parent) => native.childPids(parent).flatMap((pid) => decode(native.entry(pid)))),
    entry: (pid) => decode(native.entry(pid))[0] ?? null,
    markOf: (pid) => native.markOf(pid),
    holds: (pid, ends) => native.holds(pid, ends.pts ?? -1, ...ends.pipes),
    signal: (identity, signal) => native.signal(identity.pid, identity.startTime, signal) === 0,
  };
}

function decode(entries: NativeEntries): ProcessEntry[] {
  const found: ProcessEntry[] = [];
  for (let at = 0; at < entries.length; at += NUMBERS_PER_ENTRY) {
    const [pid = 0, parent = 0, group = 0, session = 0, startTime = 0, zombie = 0] = entries.subarray(
      at,
      at + NUMBERS_PER_ENTRY,
    );
    found.push({ pid, parent, group, session, startTime, zombie: zombie === 1 });
  }
  return found;
}
