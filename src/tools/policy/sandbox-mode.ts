import type { NetworkChoice } from "../network/network-rules.ts";
import { type SandboxChoice, toSandboxNetwork } from "./sandbox-choice.ts";

/** Sandbox modes of the command line. */
export const SANDBOX_MODES = ["none", "read-only", "workspace-write"] as const;
export type SandboxMode = (typeof SANDBOX_MODES)[number];

/** Converts a mode. `writable` has the writable roots of `workspace-write`, absolute on the host of the processes. */
export function sandboxChoiceFor(
  mode: SandboxMode,
  writable: readonly string[],
  { network = { type: "off" }, sharedTmp = false }: { network?: NetworkChoice | undefined; sharedTmp?: boolean } = {},
): SandboxChoice {
  if (mode === "none") return { type: "none" };
  const writableRoots = mode === "workspace-write" ? writable : [];
  return {
    type: "bubblewrap",
    writableRoots,
    network: toSandboxNetwork(network),
    privateTmp: sharedTmp ? "shared" : true,
  };
}
