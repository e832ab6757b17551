import type { ExitStatus } from "../exec/exec-process.ts";
import type { ChildEvents } from "../local/child.ts";
import type { RestoredChild, RestoredEvent, SupervisorChannel } from "../local/persistent/persistent-child.ts";
import { treeTags } from "../local/tree/tree-tags.ts";
import type { NativeAddon, NativeRestored } from "./addon.ts";
import { dispatchChildEvent, NativeChildProcess, nativeProcessCgroup } from "./native-process.ts";

/** The supervisor of this server. */
export interface Supervisor {
  readonly channel: SupervisorChannel;
  /** Identifies this server among all servers of the supervisor: `INSTANCE-N`. */
  readonly generation: string;
  /** Listening descriptor of the previous server; null for the first server. */
  readonly listener: number | null;
  /** Reports that the server accepts connections. */
  ready(): void;
  sendHeartbeat(): void;
  /** Calls `handOff` when the supervisor requests a handoff. */
  onHandoff(handOff: () => void): void;
}

/** Settings of the supervisor, which each server sends. */
export interface SupervisionOptions {
  /** Silence after which the supervisor replaces the server, in milliseconds; null: never. */
  livenessTimeoutMs: number | null;
  /** Crashes within a minute after which the supervisor ends everything; null: never. */
  giveUpAfter: number | null;
}

/**
 * Connects to the supervisor through the socket that PROCWIRE_SUPERVISOR names, and removes the variable from the
 * environment. Returns null without a supervisor.
 */
export function connectSupervisor(
  native: NativeAddon,
  { livenessTimeoutMs, giveUpAfter }: SupervisionOptions,
): Supervisor | null {
  const address = /^(\d+):([0-9a-f]{8}):(\d+)$/.exec(process.env.PROCWIRE_SUPERVISOR ?? "");
  delete process.env.PROCWIRE_SUPERVISOR;
  if (!address) return null;
  const [, fd, instance, generation] = address;
  const listener = native.openSupervisor(Number(fd), Number(generation), livenessTimeoutMs, giveUpAfter);
  if (typeof listener === "string") throw new Error(`cannot connect to the supervisor: ${listener}`);
  const { ready, heartbeat } = native.supervisorMessages;
  return {
    channel: {
      pid: process.ppid,
      unavailableReason: incompatibilityReason(native),
      takeRestored: () => takeRestoredChild(native),
    },
    generation: `${instance}-${generation}`,
    listener,
    ready: () => void native.notifySupervisor(ready),
    sendHeartbeat: () => void native.notifySupervisor(heartbeat),
    onHandoff: (handOff) => native.watchSupervisor(handOff),
  };
}

/** Returns why the supervisor cannot hold processes of this server, or null. A supervisor survives upgrades of its servers. */
function incompatibilityReason(native: NativeAddon): string | null {
  const [supervisor, server] = native.stateVersions();
  if (supervisor === server) return null;
  return `the supervisor reads state segment version ${supervisor}, but this server writes version ${server}; restart the service, which terminates persistent processes`;
}

function takeRestoredChild(native: NativeAddon): RestoredChild | "unreadable" | null {
  let events: ChildEvents | null = null;
  let started: NativeChildProcess | null = null;
  const taken = native.takePersistent(
    (stream, chunk) => events?.output(stream, chunk),
    (event) => {
      if (event.type === "close") started?.clearStdioIdentity();
      if (event.type === "exit" && started) treeTags.leaderExited(started.treeTag);
      if (events) dispatchChildEvent(events, event);
    },
  );
  if (taken === undefined) return null;
  if (taken === true) return "unreadable";
  const [child, restored] = taken;
  const { pid, treeTag, pipes, pts } = restored;
  treeTags.add(treeTag);
  started = new NativeChildProcess(
    native,
    child,
    // The cgroup lease of a persistent process is its tree tag.
    { pid, treeTag, cgroup: treeTag === null ? null : nativeProcessCgroup(native, treeTag) },
    { pipes, pts },
    true,
  );
  return {
    child: started,
    record: restored.record,
    isReleased: restored.isReleased,
    attachments: restored.attachments,
    size: { rows: restored.rows, cols: restored.cols },
    isStdinClosed: restored.isStdinClosed,
    evicted: { seq: restored.evictedSeq, bytes: restored.evictedBytes },
    entries: restored.entries.map((entry) => toRestoredEvent(native.segmentEntries[entry.stream], entry)),
    exit: toExit(restored),
    resume: (listener) => {
      events = listener;
      native.resumePersistent(child);
    },
  };
}

function toExit({ exitSeq, exitStatus }: NativeRestored): RestoredChild["exit"] {
  if (exitSeq === undefined || exitStatus === undefined) return null;
  return { seq: exitSeq, status: JSON.parse(exitStatus) as ExitStatus };
}

function toRestoredEvent(name: string | undefined, { seq, bytes }: NativeRestored["entries"][number]): RestoredEvent {
  switch (name) {
    case "stdout":
    case "stderr":
    case "pty":
      return { type: "output", seq, stream: name, chunk: bytes };
    case "exited":
    case "closed":
      return { type: name, seq };
    default:
      return { type: "gap", seq };
  }
}
