import type { ExitStatus } from "../exec/exec-process.ts";
import type { ChildEvents } from "../local/child.ts";
import type { InheritedChild, KeptEntry, KeptMachine } from "../local/kept-child.ts";
import { knownTrees } from "../local/known-trees.ts";
import { type NativeAddon, NativeEventError, type NativeInherited } from "./addon.ts";
import { LeasedCgroup, StartedChild, tellChild } from "./native-process.ts";

/** The keeper's messages, numbered as in `native/programs/keeper-packets.h`. */
const READY = 8;
const ALIVE = 9;

/** The keeper above this program, as its server sees it. */
export interface Keeper {
  readonly machine: KeptMachine;
  /** Names this server among those of its keeper. */
  readonly generation: string;
  /** The socket that earlier servers listened on; null for the first. */
  readonly listener: number | null;
  /** Tells the keeper that connections are accepted from now on. */
  ready(): void;
  alive(): void;
  /** The keeper wants this server to hand over and go. */
  onLeave(leave: () => void): void;
}

/** The keeper names its socket in this variable, which is not passed on to the programs that are started here. */
export function openKeeper(
  native: NativeAddon,
  hungAfterMs: number,
  env: NodeJS.ProcessEnv = process.env,
): Keeper | null {
  const named = /^(\d+):([0-9a-f]{8}):(\d+)$/.exec(env.PROCWIRE_KEEPER ?? "");
  delete env.PROCWIRE_KEEPER;
  if (!named) return null;
  const [, fd, instance, count] = named;
  const listener = native.openKeeper(Number(fd), Number(count), hungAfterMs);
  if (typeof listener === "string")
    throw new Error(`the keeper above this server cannot be asked: ${listener}`);
  return {
    machine: { pid: process.ppid, whyNot: whyNot(native), take: () => takeOne(native) },
    generation: `${instance}-${count}`,
    listener: listener < 0 ? null : listener,
    ready: () => void native.tellKeeper(READY),
    alive: () => void native.tellKeeper(ALIVE),
    onLeave: (leave) => native.watchKeeper(leave),
  };
}

/** After an upgrade the keeper is still the one of before. */
function whyNot(native: NativeAddon): string | null {
  const [keeper, server] = native.keptVersions();
  if (keeper === server) return null;
  return `the keeper above this server reads version ${keeper} of what is kept and this server writes version ${server}; restart the whole service, which ends what is kept`;
}

function takeOne(native: NativeAddon): InheritedChild | "unreadable" | null {
  let events: ChildEvents | null = null;
  let started: StartedChild | null = null;
  const found = native.takeKept((number, first, second) => {
    const event = native.childEvents[number];
    if (event === "close") started?.forgetEnds();
    if (event === "exit" && started) knownTrees.leaderExited(started.mark);
    if (events && !tellChild(events, event, first, second))
      events.broken(new NativeEventError("child", event ?? number, [first, second]));
  });
  if (found === undefined) return null;
  if (found === true) return "unreadable";
  const [child, pid, startTime, pts, pipes, mark, record, hasLeft, attachments, rows, cols, isStdinClosed] =
    found;
  knownTrees.begins(mark);
  started = new StartedChild(
    native,
    child,
    // A kept process's lease is its mark.
    { pid, startTime, mark, cgroup: new LeasedCgroup(native, mark) },
    { pipes, pts: pts < 0 ? null : pts },
    true,
  );
  return {
    child: started,
    record,
    hasLeft,
    attachments,
    size: { rows, cols },
    isStdinClosed,
    ...told(found),
    begin: (listener) => {
      events = listener;
      native.beginKept(child);
    },
  };
}

function told(found: NativeInherited): Pick<InheritedChild, "entries" | "gone" | "exit"> {
  const [entries, goneSeq, goneBytes, exitSeq, exitStatus] = found.slice(12) as [
    NativeInherited[12],
    number,
    number,
    number?,
    string?,
  ];
  return {
    gone: { seq: goneSeq, bytes: goneBytes },
    entries: entries.map(entryOf),
    exit:
      exitSeq === undefined || exitStatus === undefined
        ? null
        : { seq: exitSeq, status: JSON.parse(exitStatus) as ExitStatus },
  };
}

const STREAMS = ["stdout", "stderr", "pty"] as const;

function entryOf([kind, seq, , bytes]: NativeInherited[12][number]): KeptEntry {
  const stream = STREAMS[kind];
  if (stream) return { type: "output", seq, stream, chunk: bytes };
  return { type: kind === 3 ? "exited" : kind === 4 ? "closed" : "hole", seq };
}
