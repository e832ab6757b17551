import { invalidParams } from "../../protocol/errors.ts";
import type { ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { HostServices } from "../host-services.ts";
import { isUnrestricted } from "./file-methods.ts";

type Method = "capabilityRoots/discoverV1";

/** Discovers the capabilities below each root, inside the sandbox that the root requests. */
export async function discoverRoots(
  params: ParamsOf<Method>,
  host: Pick<HostServices, "environment" | "sandboxedFiles">,
  scope: object,
): Promise<ResultOf<Method>> {
  const found: unknown[] = [];
  // Sequential: each root is a walk of a whole tree.
  for (const { sandbox, ...root } of params.roots) {
    const request = { roots: [root] };
    const isSandboxed = sandbox !== undefined && sandbox !== null && !isUnrestricted(sandbox);
    if (isSandboxed && !host.sandboxedFiles) throw invalidParams("sandbox intent cannot be enforced on this executor");
    const files = isSandboxed ? await host.sandboxedFiles?.forSandbox(sandbox, scope) : undefined;
    const { roots } = await (files
      ? files.call("capabilityRoots/discoverV1", request)
      : host.environment.discoverRoots(request));
    if (Array.isArray(roots)) found.push(...roots);
  }
  return { roots: found };
}
