/**
 * Processes on this machine, with the addon where it is there. Only composition roots import it: code that
 * starts processes is given a backend and does not choose one.
 */

import type { StartParams } from "../exec/exec-process.ts";
import type { KeptMachine } from "../local/kept-child.ts";
import { LocalBackend, type LocalBackendOptions } from "../local/local-backend.ts";
import { type LocalMachine, plainMachine } from "../local/platform.ts";
import { loadAddon } from "../native/addon.ts";
import { nativeMachine } from "../native/native-process.ts";

export interface ThisMachineOptions extends LocalBackendOptions {
  /** The keeper above this program. */
  keeper?: KeptMachine | null | undefined;
  /** Do without the addon even where it is there. */
  forceFallback?: boolean | undefined;
}

/** Starts processes on this machine. The sandbox code is loaded by the first start that has a sandbox intent. */
export function createLocalBackend({
  forceFallback,
  keeper = null,
  ...options
}: ThisMachineOptions = {}): LocalBackend {
  const resolveSandbox = options.resolveSandbox ?? resolvePlainly;
  let hasWalls = false;
  return new LocalBackend(
    forceFallback ? plainMachine("it was switched off (forceFallback)") : thisMachine(keeper),
    {
      calledDirectly: true,
      ...options,
      resolveSandbox: (intent, params) => {
        hasWalls = true;
        return resolveSandbox(intent, params);
      },
      settleSandboxes: async () => {
        if (!hasWalls) return;
        const { lastingTmps } = await import("../sandbox/shared-tmp.ts");
        await lastingTmps.settled();
      },
    },
  );
}

async function resolvePlainly(intent: unknown, params: StartParams) {
  const { resolveSandbox } = await import("../sandbox/resolve-sandbox.ts");
  return resolveSandbox(intent, params);
}

function thisMachine(keeper: KeptMachine | null): LocalMachine {
  const loaded = loadAddon();
  return loaded.type === "loaded" ? nativeMachine(loaded.addon, keeper) : plainMachine(loaded.why);
}
