import { invalidParams } from "../protocol/errors.ts";
import type { ParamsOf, ResultOf } from "../protocol/methods.ts";
import type { HostServices } from "./host-services.ts";
import { isUnrestricted } from "./rpc/file-methods.ts";

type Method = "capabilityRoots/discoverV1";

/** Looks for capabilities below each root, from behind the walls that the root's own sandbox asks for. */
export async function discoverRoots(
  params: ParamsOf<Method>,
  host: Pick<HostServices, "environment" | "walledFiles">,
  scope: object,
): Promise<ResultOf<Method>> {
  const found: unknown[] = [];
  // One after another: each is a walk of a whole tree.
  for (const { sandbox, ...root } of params.roots) {
    const asked = { roots: [root] };
    const isWalled = sandbox !== undefined && sandbox !== null && !isUnrestricted(sandbox);
    const { roots } = isWalled
      ? await (await behind(host, sandbox, scope)).call("capabilityRoots/discoverV1", asked)
      : await host.environment.discoverRoots(asked);
    if (Array.isArray(roots)) found.push(...roots);
  }
  return { roots: found };
}

function behind({ walledFiles }: Pick<HostServices, "walledFiles">, sandbox: unknown, scope: object) {
  if (!walledFiles) throw invalidParams("sandbox intent cannot be enforced on this executor");
  return walledFiles.behind(sandbox, scope);
}
