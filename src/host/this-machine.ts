/**
 * Processes on this machine, with the addon where it is there. Only composition roots import it: whoever starts
 * processes is given a machine, and does not look for one.
 */

import { LocalBackend, type LocalBackendOptions } from "../local/local-backend.ts";
import { type LocalMachine, plainMachine } from "../local/machine.ts";
import { loadAddon } from "../native/addon.ts";
import { nativeMachine } from "../native/native-process.ts";

export interface ThisMachineOptions extends LocalBackendOptions {
  /** Do without the addon even where it is there. */
  forceFallback?: boolean | undefined;
}

/** What starts processes here, behind walls where a sandbox intent asks for them; the first such loads what raises them. */
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
