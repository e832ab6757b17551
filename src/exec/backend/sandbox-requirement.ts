import { invalidRequest, type RequestError } from "../../protocol/errors.ts";
import type { StartParams } from "../exec-process.ts";

/** Minimum confinement of a start, which the server requires of its clients. */
export type SandboxRequirement = NonNullable<StartParams["sandboxRequirement"]>;

export const REQUIRED_SANDBOXES = [
  "read-only",
  "workspace-write",
  "read-only+network",
  "workspace-write+network",
] as const;
export type RequiredSandbox = (typeof REQUIRED_SANDBOXES)[number];

export function isRequiredSandbox(text: string): text is RequiredSandbox {
  return REQUIRED_SANDBOXES.some((known) => known === text);
}

/** Converts the text of a flag or claim. */
export function toSandboxRequirement(text: RequiredSandbox, roots: readonly string[] | null): SandboxRequirement {
  const mode = text.startsWith("read-only") ? "read-only" : "workspace-write";
  return { mode, network: text.endsWith("+network"), roots };
}

/** Returns the stricter requirement. Only the second has roots. */
export function stricterRequirement(
  first: SandboxRequirement | null,
  second: SandboxRequirement | null,
): SandboxRequirement | null {
  if (!first || !second) return first ?? second;
  const mode = first.mode === "read-only" ? "read-only" : second.mode;
  return { mode, network: first.network && second.network, roots: second.roots };
}

/** Returns the rejection of a start that confines less than the requirement. */
export function sandboxRequirementError({ mode, network, roots }: SandboxRequirement, problem: string): RequestError {
  const name = `${mode}${network ? "+network" : ""}`;
  const within = roots === null ? "" : ` within ${roots.map((root) => `\`${root}\``).join(", ")}`;
  return invalidRequest(`a sandbox of at least ${name}${within} is required: ${problem}`);
}
