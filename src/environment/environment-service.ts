import type { EnvironmentInfo, ParamsOf } from "../protocol/methods.ts";
import { environmentInfo } from "./environment-info.ts";

export interface LocalEnvironmentOptions {
  version: string;
  /** Asked for with the first handshake, not before. */
  degraded?: () => string[];
  /** Which sandboxes can be enforced here. Finding out runs a program, so it waits until somebody asks. */
  sandboxes?: () => Promise<string[]>;
  /** Throws when this host cannot read files now. */
  beforeReading?: () => void;
}

type Answer = Promise<Record<string, unknown>>;

/** This host, for a server: found out once and kept; the code that reads files is loaded by the first request. */
export function localEnvironment(options: LocalEnvironmentOptions) {
  let info: EnvironmentInfo | null = null;
  const handshakeInfo = () => {
    info ??= environmentInfo({ version: options.version, degraded: options.degraded?.() ?? [] });
    return info;
  };
  return {
    /** What a handshake answers: cheap, with only those sandboxes that are known already. */
    info: handshakeInfo,
    /** Everything, also what takes a moment to find out. */
    async describe(): Promise<EnvironmentInfo> {
      info = { ...handshakeInfo(), sandboxes: (await options.sandboxes?.()) ?? [] };
      return info;
    },
    async readConfig(params: ParamsOf<"environmentConfig/read">): Answer {
      options.beforeReading?.();
      const { readEnvironmentConfig } = await import("./environment-config.ts");
      return { ...(await readEnvironmentConfig(params)) };
    },
    async discoverRoots(params: ParamsOf<"capabilityRoots/discoverV1">): Answer {
      options.beforeReading?.();
      const { discoverCapabilityRoots } = await import("./capability-roots.ts");
      return await discoverCapabilityRoots(params);
    },
    /** The working directory is not looked at: a project's own skills are the client's to find. */
    async discover(_params: ParamsOf<"capabilities/discoverV2">): Answer {
      options.beforeReading?.();
      const { discoverCapabilities } = await import("./capabilities.ts");
      return { ...(await discoverCapabilities()) };
    },
  };
}
