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
  const discover = async ({ sandbox, ...root }: (typeof params.roots)[number]): Promise<ResultOf<Method>> => {
    const request = { roots: [root] };
    if (sandbox === undefined || isUnrestricted(sandbox)) return host.environment.discoverRoots(request);
    if (!host.sandboxedFiles) throw invalidParams("sandbox intent cannot be enforced on this executor");
    return (await host.sandboxedFiles.forSandbox(sandbox, scope)).call("capabilityRoots/discoverV1", request);
  };
  const found: unknown[] = [];
  // Sequential: each root is a walk of a whole tree.
  for (const root of params.roots) {
    const { roots } = await discover(root);
    if (Array.isArray(roots)) found.push(...roots);
  }
  return { roots: found };
}
