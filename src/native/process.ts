import type { TerminalSize, TtyState } from "../exec/exec-process.ts";
import type { Child, ChildEnds, ChildEvents, SpawnChild } from "../local/child.ts";
import { NO_ENDS } from "../local/child.ts";
import { spawnErrorFromErrno } from "../local/spawn-error.ts";
import type { NativeChild, NativeSpawner } from "./addon.ts";
import { NativeEvent } from "./addon.ts";

/** Starts programs through the native spawner. */
export function nativeSpawn(native: NativeSpawner): SpawnChild {
  return (spec, events) =>
    new Promise((resolve, reject) => {
      let started: StartedChild | null = null;
      native.spawn(
        spec.file,
        block(spec.argv),
        block(Object.entries(spec.env).map(([name, value]) => `${name}=${value}`)),
        spec.cwd,
        spec.terminal !== null,
        spec.pipeStdin,
        spec.terminal?.rows ?? 0,
        spec.terminal?.cols ?? 0,
        (errno, syscall, path, child, pid, startTime, pts, pipes) => {
          if (errno !== 0) {
            reject(spawnErrorFromErrno(errno, syscall, path));
            return;
          }
          started = new StartedChild(native, child, pid, startTime, { pipes, pts: pts < 0 ? null : pts });
          resolve(started);
        },
        (event, first, second) => {
          if (event === NativeEvent.close) started?.forgetEnds();
          tell(events, event, first, second);
        },
      );
    });
}

class StartedChild implements Child {
  readonly pid: number;
  readonly startTime: number;
  readonly #native: NativeSpawner;
  readonly #child: NativeChild;
  #ends: ChildEnds;

  constructor(native: NativeSpawner, child: NativeChild, pid: number, startTime: number, ends: ChildEnds) {
    this.#native = native;
    this.#child = child;
    this.pid = pid;
    this.startTime = startTime;
    this.#ends = ends;
  }

  get ends(): ChildEnds {
    return this.#ends;
  }

  forgetEnds(): void {
    this.#ends = NO_ENDS;
  }

  write(bytes: Uint8Array): void {
    this.#native.write(this.#child, bytes);
  }

  get queuedBytes(): number {
    return this.#native.queuedInput(this.#child);
  }

  knowsWrite(writeId: string): boolean {
    return this.#native.knowsWrite(this.#child, writeId);
  }

  rememberWrite(writeId: string): void {
    this.#native.rememberWrite(this.#child, writeId);
  }

  get directInput(): object {
    return this.#child;
  }

  refuseInput(): void {
    this.#native.refuseInput(this.#child);
  }

  closeStdin(): void {
    this.#native.closeStdin(this.#child);
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

function tell(events: ChildEvents, event: number, first: unknown, second: unknown): void {
  switch (event) {
    case NativeEvent.stdout:
      if (first instanceof Uint8Array) events.output("stdout", first);
      return;
    case NativeEvent.stderr:
      if (first instanceof Uint8Array) events.output("stderr", first);
      return;
    case NativeEvent.terminal:
      if (first instanceof Uint8Array) events.output("pty", first);
      return;
    case NativeEvent.exit:
      if (typeof second === "number" && second > 0) events.exit({ type: "signal", signal: second });
      else events.exit({ type: "code", code: Number(first) });
      return;
    case NativeEvent.close:
      events.close();
      return;
    case NativeEvent.drain:
      events.drain();
      return;
  }
}

/** Parts, each ended by a zero byte: one value crosses into the addon instead of one per part. */
function block(parts: readonly string[]): string {
  return parts.map((part) => `${part}\0`).join("");
}
