import type { TerminalSize, TtyState } from "../exec/exec-process.ts";
import type {
  Child,
  ChildEvents,
  ChildInput,
  ChildSpec,
  ProcessCgroup,
  SpawnChild,
  StdioIdentity,
} from "../local/child.ts";
import { NO_STDIO_IDENTITY } from "../local/child.ts";
import { errnoMessage, outputReadError } from "../local/errno-text.ts";
import type { PersistentChild, SupervisorChannel } from "../local/persistent/persistent-child.ts";
import type { ProcessPlatform } from "../local/platform.ts";
import { toSpawnError } from "../local/spawn-error.ts";
import { serverCgroupPath } from "../local/tree/cgroups.ts";
import type { ProcessEntry, ProcessTable } from "../local/tree/process-table.ts";
import { treeTags } from "../local/tree/tree-tags.ts";
import type { NativeAddon, NativeChild, NativeChildEvent, NativeEntries } from "./addon.ts";
import { NativeEventError } from "./addon.ts";

/** Process platform of this host, implemented by the addon. */
export function nativePlatform(native: NativeAddon, supervisor: SupervisorChannel | null = null): ProcessPlatform {
  let onCgroupFailure = (_errno: number) => {};
  return {
    supervisor,
    spawn: nativeSpawn(native, (errno) => onCgroupFailure(errno)),
    table: nativeProcessTable(native),
    reaper: {
      setSubreaper: (on) => void native.setSubreaper(on),
      reap: (pid) => native.reap(pid),
    },
    canLimitResources: true,
    openCgroups: ({ persistentTags, onFailure }) => {
      const directory = serverCgroupPath();
      if (directory === null) return;
      // Reports only the first failure.
      onCgroupFailure = (errno) => {
        onCgroupFailure = () => {};
        onFailure(errnoMessage(errno));
      };
      const errno = native.openProcessCgroups(directory, Float64Array.from(persistentTags));
      if (errno !== null) onCgroupFailure(errno);
    },
    degraded: [],
  };
}

/** Starts processes through the addon. `onCgroupFailure` is called when a process cgroup cannot be created. */
export function nativeSpawn(native: NativeAddon, onCgroupFailure = (_errno: number) => {}): SpawnChild {
  return (spec, events) =>
    new Promise((resolve, reject) => {
      let started: NativeChildProcess | null = null;
      const issuedTag = native.spawn({
        file: spec.file,
        argv: joinNulTerminated(spec.argv),
        env: joinVariables(spec.env),
        cwd: spec.cwd,
        directory: spec.directory ?? null,
        terminal: spec.terminal !== null,
        rows: spec.terminal?.rows ?? 0,
        cols: spec.terminal?.cols ?? 0,
        pipeStdin: spec.pipeStdin,
        descriptors: spec.descriptors.length === 0 ? NO_DESCRIPTORS : Int32Array.from(spec.descriptors),
        limits: spec.limits ? packResourceLimits(native, spec.limits) : NO_LIMITS,
        cgroups: spec.limits ? joinNulTerminated(spec.limits.cgroups) : "",
        landlock: spec.landlock ?? false,
        wantsCgroup: !spec.limits?.tree,
        persistentRecord: spec.persistent?.record ?? null,
        maxOutputBytes: spec.persistent?.maxOutputBytes ?? null,
        onDone: (result) => {
          if ("syscall" in result) {
            treeTags.forget(issuedTag);
            reject(toSpawnError(result.errno, result.syscall, result.path));
            return;
          }
          const { child, pid, pts, pipes, treeTag, cgroupLease, cgroupErrno } = result;
          if (treeTag !== issuedTag) treeTags.forget(issuedTag);
          // The addon issued a tag but could not set it.
          if (treeTag === null && issuedTag !== null) treeTags.add(treeTag);
          if (cgroupErrno !== null) onCgroupFailure(cgroupErrno);
          const cgroup = spec.limits?.tree ?? (cgroupLease === null ? null : nativeProcessCgroup(native, cgroupLease));
          const identity = { pid, treeTag, cgroup };
          started = new NativeChildProcess(native, child, identity, { pipes, pts }, spec.persistent !== undefined);
          resolve(started);
        },
        onOutput: (stream, chunk) => events.output(stream, chunk),
        onEvent: (event) => {
          if (event.type === "close") started?.clearStdioIdentity();
          if (event.type === "exit") treeTags.leaderExited(issuedTag);
          dispatchChildEvent(events, event);
        },
      });
      // Registered before the start completes, because a descendant may already be an orphan then.
      treeTags.add(issuedTag);
    });
}

export function nativeProcessCgroup(native: NativeAddon, lease: number): ProcessCgroup {
  return {
    pids: () => native.processCgroupPids(lease),
    kill: () => native.killProcessCgroup(lease),
  };
}

/** Records the state of a persistent process in its segment. */
function nativePersistentChild(native: NativeAddon, child: NativeChild): PersistentChild {
  return {
    recordExit: (status) => native.recordExit(child, JSON.stringify(status)),
    recordClosed: () => native.recordClosed(child),
    saveSession: ({ isReleased, attachments }) => native.saveSession(child, isReleased, attachments),
    remove: () => native.removePersistent(child),
  };
}

export class NativeChildProcess implements Child {
  readonly persistent: PersistentChild | null;
  readonly pid: number;
  readonly treeTag: number | null;
  readonly cgroup: ProcessCgroup | null;
  readonly input: ChildInput;
  readonly #native: NativeAddon;
  readonly #child: NativeChild;
  stdioIdentity: StdioIdentity;

  constructor(
    native: NativeAddon,
    child: NativeChild,
    { pid, treeTag, cgroup = null }: Pick<Child, "pid" | "treeTag" | "cgroup">,
    stdioIdentity: StdioIdentity,
    isPersistent: boolean,
  ) {
    this.persistent = isPersistent ? nativePersistentChild(native, child) : null;
    this.#native = native;
    this.#child = child;
    this.pid = pid;
    this.treeTag = treeTag;
    this.cgroup = cgroup;
    this.stdioIdentity = stdioIdentity;
    this.input = new NativeChildInput(native, child, isPersistent);
  }

  get startTime(): number | null {
    return this.#native.startTime(this.#child);
  }

  clearStdioIdentity(): void {
    this.stdioIdentity = NO_STDIO_IDENTITY;
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
    return this.#native.terminalState(this.#child) ?? null;
  }

  signalGroup(signal: number): boolean {
    return this.#native.signalGroup(this.#child, signal);
  }

  closeStreams(): void {
    this.clearStdioIdentity();
    this.#native.closeStreams(this.#child);
  }
}

/** Input of a child. A class, because an object literal with a getter costs kilobytes of hidden class per child. */
class NativeChildInput implements ChildInput {
  readonly #native: NativeAddon;
  readonly #child: NativeChild;

  /** 0 for a persistent process: queued input is lost with the server, so a write completes only when none is queued. */
  readonly maxQueuedBytes: number | undefined;

  constructor(native: NativeAddon, child: NativeChild, isPersistent: boolean) {
    this.#native = native;
    this.#child = child;
    this.maxQueuedBytes = isPersistent ? 0 : undefined;
  }

  write(bytes: Uint8Array, writeId?: string): void {
    this.#native.write(this.#child, bytes, writeId);
  }

  hasWriteId(writeId: string): boolean {
    return this.#native.hasWriteId(this.#child, writeId);
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

  get direct(): object {
    return this.#child;
  }

  closeDirect(): void {
    this.#native.rejectDirectInput(this.#child);
  }
}

export function dispatchChildEvent(events: ChildEvents, event: NativeChildEvent): void {
  switch (event.type) {
    case "exit":
      events.exit("signal" in event ? { type: "signal", signal: event.signal } : { type: "code", code: event.code });
      break;
    case "close":
      events.close();
      break;
    case "drain":
      events.drain();
      break;
    case "unreadable":
      events.failed(outputReadError(event.errno));
      break;
    case "refused":
      events.failed(
        new Error("process killed: the supervisor could not persist it; see the server's log for the cause"),
      );
      break;
    default:
      events.failed(new NativeEventError("child", event));
  }
}

const NO_DESCRIPTORS = new Int32Array(0);
const NO_LIMITS = new Float64Array(0);

function packResourceLimits(native: NativeAddon, { resources }: NonNullable<ChildSpec["limits"]>): Float64Array {
  return Float64Array.from(
    resources.flatMap(({ resource, soft, hard }) => [native.resourceLimits[resource], soft, hard]),
  );
}

/** Joins parts with terminating zero bytes, so that one value crosses into the addon instead of one per part. */
function joinNulTerminated(parts: readonly string[]): string {
  let joined = "";
  for (const part of parts) joined += `${part}\0`;
  return joined;
}

function joinVariables(env: ChildSpec["env"]): string {
  let joined = "";
  for (const [name, value] of Object.entries(env)) joined += `${name}=${value}\0`;
  return joined;
}

/** Process table of the addon: takes microseconds, where reading /proc from JavaScript takes milliseconds. */
export function nativeProcessTable(native: NativeAddon): ProcessTable {
  const decode = processEntryDecoder(native.processEntryFields);
  return {
    descendants: (pid) => decode(native.descendants(pid)),
    orphanPids: () => native.orphanPids(),
    children: (parents) =>
      [...parents].flatMap((parent) => native.childPids(parent).flatMap((pid) => decode(native.entry(pid)))),
    entry: (pid) => decode(native.entry(pid))[0] ?? null,
    tagOf: (pid) => native.tagOf(pid),
    hasOpen: (pid, stdio) => native.hasStdioOpen(pid, stdio.pts, ...stdio.pipes),
    signal: (identity, signal) => native.signal(identity.pid, identity.startTime, signal) === null,
  };
}

/** Decodes packed process entries by the field order of the addon. */
function processEntryDecoder(fields: readonly string[]): (entries: NativeEntries) => ProcessEntry[] {
  const indexOf = (field: keyof ProcessEntry) => fields.indexOf(field);
  const [pid, parent, group] = [indexOf("pid"), indexOf("parent"), indexOf("group")];
  const [session, startTime, zombie] = [indexOf("session"), indexOf("startTime"), indexOf("zombie")];
  return (entries) => {
    const decoded: ProcessEntry[] = [];
    for (let start = 0; start < entries.length; start += fields.length) {
      const at = (index: number) => entries[start + index] ?? 0;
      decoded.push({
        pid: at(pid),
        parent: at(parent),
        group: at(group),
        session: at(session),
        startTime: at(startTime),
        zombie: at(zombie) === 1,
      });
    }
    return decoded;
  };
}
