import type { SandboxChoice } from "./sandbox-choice.ts";

/** The walls that a person chooses by one word. */
export const SANDBOX_MODES = ["none", "read-only", "workspace-write"] as const;
export type SandboxMode = (typeof SANDBOX_MODES)[number];

/** `writable`: what `workspace-write` leaves writable, absolute on the host of the processes. */
export function sandboxOf(
  mode: SandboxMode,
  writable: readonly string[],
  { network = false, lastingTmp = false }: { network?: boolean; lastingTmp?: boolean } = {},
): SandboxChoice {
  if (mode === "none") return { type: "none" };
  const writableRoots = mode === "workspace-write" ? writable : [];
  return { type: "bubblewrap", writableRoots, network, privateTmp: lastingTmp ? "lasting" : true };
}
