import { realpath } from "node:fs/promises";
import { type SandboxRequirement, sandboxRequirementError } from "../exec/backend/sandbox-requirement.ts";
import { isWithin, type SandboxPolicy } from "./bubblewrap.ts";

/** Paths that programs need to run on the usual Linux distributions. */
export const MINIMAL_ROOTS = ["/bin", "/sbin", "/usr", "/etc", "/lib", "/lib32", "/lib64", "/nix/store", "/opt"];

/**
 * Throws unless the resolved sandbox confines at least as much as the requirement. The policy has real paths, so that no
 * symbolic link leads out of the roots.
 */
export async function enforceRequirement(requirement: SandboxRequirement, policy: SandboxPolicy): Promise<void> {
  const { mode, network, roots } = requirement;
  const refusal = (problem: string) => sandboxRequirementError(requirement, problem);
  if (policy.network && !network) throw refusal("it has network access; request `network: restricted`");
  const allowed = roots && (await Promise.all(roots.map((root) => realpath(root).catch(() => root))));
  const cwd = await realpath(policy.cwd).catch(() => policy.cwd);
  const isInside = (path: string) => (allowed ?? [cwd]).some((root) => isWithin(path, root));
  if (allowed && !isInside(cwd)) throw refusal(`its working directory \`${policy.cwd}\` is outside`);
  if (!allowed && mode === "workspace-write" && cwd === "/")
    throw refusal("its working directory is `/`; start it in the workspace");
  for (const { path, access } of policy.roots) {
    if (access === "deny") continue;
    if (access === "write" && (mode === "read-only" || !isInside(path))) throw refusal(`\`${path}\` is writable`);
    if (allowed && !isInside(path) && !MINIMAL_ROOTS.includes(path))
      throw refusal(`\`${path}\` is readable; request the location \`minimal\` and paths within the roots`);
  }
}
