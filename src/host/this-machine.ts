/**
 * Processes on this machine, with the addon where it is there. Only composition roots import it: code that
 * starts processes is given a backend and does not choose one.
 */

import { LocalBackend, type LocalBackendOptions } from "../local/local-backend.ts";
import { type LocalMachine, plainMachine } from "../local/machine.ts";
import { loadAddon } from "../native/addon.ts";
import { nativeMachine } from "../native/native-process.ts";

export interface ThisMachineOptions extends LocalBackendOptions {
  /** Do without the addon even where it is there. */
  forceFallback?: boolean | undefined;
}

/** Starts processes on this machine. The sandbox code is loaded by the first start that has a sandbox intent. */
export function createLocalBackend({ forceFallback, ...options }: ThisMachineOptions = {}): LocalBackend {
  return new LocalBackend(forceFallback ? plainMachine("it was not wanted") : thisMachine(), {
    uniqueIds: true,
    resolveSandbox: async (intent, params) => {
      const { resolveSandbox } = await import("../sandbox/resolve-sandbox.ts");
      return resolveSandbox(intent, params);
    },
    ...options,
  });
}

function thisMachine(): LocalMachine {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeMachine(loaded.addon) : plainMachine(loaded.why);
}
