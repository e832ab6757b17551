import type { Child, SpawnChild } from "./child.ts";
import { NO_ENDS } from "./child.ts";
import type { NativeSpawner } from "./native.ts";
import { NativeEvent } from "./native.ts";
import { spawnErrorFromErrno } from "./spawn-error.ts";

/** Starts programs through the native spawner. */
export function nativeSpawn(native: NativeSpawner): SpawnChild {
  return (spec, events) => {
    let ends = NO_ENDS;
    return new Promise((resolve, reject) => {
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
          ends = { pipes, pts: pts < 0 ? null : pts };
          const started: Child = {
            pid,
            startTime,
            get ends() {
              return ends;
            },
            write: (bytes) => native.write(child, bytes),
            closeStdin: () => native.closeStdin(child),
            pause: () => native.pause(child),
            resume: () => native.resume(child),
            cut: () => {
              ends = NO_ENDS;
              native.cut(child);
            },
            resize: ({ rows, cols }) => void native.resize(child, rows, cols),
            ttyState: () => {
              const state = native.terminalState(child);
              return state ? { rows: state[0], cols: state[1], echo: state[2], canonical: state[3] } : null;
            },
            signalGroup: (signal) => native.signalGroup(child, signal),
          };
          resolve(started);
        },
        (event, first, second) => {
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
              ends = NO_ENDS;
              events.close();
              return;
            case NativeEvent.drain:
              events.drain();
              return;
          }
        },
      );
    });
  };
}

/** Parts, each ended by a zero byte: one value crosses into the addon instead of one per part. */
function block(parts: readonly string[]): string {
  return parts.map((part) => `${part}\0`).join("");
}
